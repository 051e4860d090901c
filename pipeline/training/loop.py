"""The one loop that trains every head: from a representation store to one folder a seed (and point of a sweep).

All of them train side by side, in one pass over the store, in one process or in several that share each batch
(:mod:`pipeline.world`). A run is a function of the store, the head's config and the training config; killed at any
moment, the same call goes on and ends with the same weights (bit for bit on a CPU with the same number of threads, for
up to four processes).
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from pipeline.config import meaning
from pipeline.devices import device_named
from pipeline.digests import digest
from pipeline.heads import make_head
from pipeline.heads.base import Head, Summary
from pipeline.interruption import Interrupted
from pipeline.memory import keep_freed_memory
from pipeline.places import Place
from pipeline.progress import Progress, Silent
from pipeline.representation_store import RepresentationStore
from pipeline.training.checkpoints import describe_head, save_head
from pipeline.training.config import TrainingConfig
from pipeline.training.divergence import TrainingDivergedError, refuse_divergence
from pipeline.training.engines import make_engine
from pipeline.training.events import training_log
from pipeline.training.holdout import Validation
from pipeline.training.initial import Initial, begin
from pipeline.training.log import TrainingLog
from pipeline.training.members import Member, embedder
from pipeline.training.once import finalise, fit, make_reader
from pipeline.training.schedule import learning_rate
from pipeline.training.state import load_state, remove_state, save_state
from pipeline.training.sweep import head_configs, head_folders, points
from pipeline.world import World, current_world

__all__ = ["LOG", "TrainingDivergedError", "store_digest", "train"]

LOG, LOOKS = "log.csv", "validation.csv"  # in the folder of each seed


def store_digest(store: RepresentationStore) -> str:
    """What a store is: its run record and the rows that are committed."""
    return digest({"run": store.run, "rows": {str(unit): rows for unit, rows in store.counts().items()}})


def train(
    *,
    store: RepresentationStore,
    head: Mapping[str, Any],
    config: TrainingConfig,
    summary: Summary,
    folder: Place,
    progress: Progress,
    initial: Initial | None = None,
) -> None:
    """Train one head for each seed and save it in ``<folder>/seed-<seed>``; go on where an earlier call was cut off.

    With a sweep this is done at each of its points, in ``<folder>/<point>/seed-<seed>``, all in the same pass.

    Where a process group has been initialised, all its processes call this alike and share each batch. The first one
    alone writes and reports; when the call returns, in whichever process, the heads are there. What ends one process
    ends all, with its reason.

    Args:
        store: rows to train on.
        head: ``{kind, …}`` as for :func:`pipeline.heads.make_head`.
        config: of the training; a head that needs none is prepared and saved.
        summary: of ``store``, see :func:`pipeline.training.summary.summarise`.
        folder: of this run.
        progress: told of samples, loss and rate.
        initial: heads whose weights each seed starts from; None: from those that are drawn.

    Raises:
        UserError: the store lacks what the head needs, the head to start from does not fit, ``folder`` holds the state
            of another run, or there are more processes than can share a batch.
        TrainingDivergedError: a loss or a weight is not finite any more.
        LostError: another process has ended.
        Interrupted: somebody asked to stop; the state is saved.
    """
    world = current_world()
    with world.together():
        settings = head_configs(config)
        heads = [make_head(head, seed=seed) for _ in points(config) for seed in config.seeds]
        for one in heads:
            one.prepare(summary)
        if initial is not None:
            begin(heads, initial, summary, progress if world.first else Silent())
        trained = heads[0].needs.training
        metrics: Sequence[Mapping[str, float]] = [{} for _ in heads]
        if trained:
            metrics = _Run(store, heads, config, folder, world).run(progress if world.first else Silent())
        elif world.first:
            for one in heads:
                fit(one, store, config, progress)
        for place, own in enumerate(head_folders(folder, config) if world.first else ()):
            save_head(
                own,
                heads[place].eval(),
                summary,
                store=store_digest(store),
                training=meaning(settings[place]) if trained else {},
                metrics=metrics[place],
            )
        if world.first:
            remove_state(folder)


class _Run:
    def __init__(
        self, store: RepresentationStore, heads: list[Head], config: TrainingConfig, folder: Place, world: World
    ) -> None:
        self.store, self.config, self.folder, self.world = store, config, folder, world
        self.device = device_named(config.device, "train_head.device")
        if self.device.type == "cpu":
            keep_freed_memory()
        self.reader, self.keep = make_reader(store, heads[0].needs, config)
        self.members = [Member(head, own, self.device) for head, own in zip(heads, head_configs(config), strict=True)]
        self.engine = make_engine(self.members, config, world)
        self.embed = embedder(self.members, current=self.engine.current)
        self.logs, self.looks = (
            [training_log(own / name, config) for own in head_folders(folder, config)] for name in (LOG, LOOKS)
        )
        self.meaning = {
            "head": describe_head(heads[0]),
            "training": meaning(config),
            "store": store_digest(store),
        }

    def run(self, progress: Progress) -> list[Mapping[str, float]]:
        """Train to the end; final metrics of each member, which the first process has to write."""
        with self.world.together():
            found = load_state(self.folder, self.meaning, self.world, progress)
            start, tensors, self.engine.losses.before_SMK = found
            if tensors:
                self.engine.restore(tensors)
            for log in (*self.logs, *self.looks) if self.world.first else ():
                if damaged := log.cut(start):
                    progress.say(f"train_head: {log.path}: {damaged} lines cannot be read and are left out of the log.")
        devices = [self.device] if self.device.type == "cuda" else []
        with torch.random.fork_rng(devices=devices):  # members draw from the global generator; the caller's is kept
            self._steps(start, progress)
            self.engine.finish()
            for member in self.members:  # in every process: it takes no longer, and none waits for another
                finalise(member.head, lambda: self.reader, self.config, progress)
        if not self.world.first:
            return [{} for _ in self.members]
        return [self._metrics(member, log) for member, log in zip(self.members, self.logs, strict=True)]

    def _steps(self, start: int, progress: Progress) -> None:
        config, total = self.config, self.config.total_steps
        bar = progress.bar("train_head", total * config.batch_size, "samples", initial=start * config.batch_size)
        began = saved = time.monotonic()
        logged = start
        if self.reader.left_out:
            progress.say(f"train_head: {self.reader.left_out}.")
        made = self.reader.batches(start, total, self.engine.rows, self.embed)
        with closing(made) as batches, closing(bar):
            for done in range(start + 1, total + 1):
                rates = [learning_rate(member.config, done - 1) for member in self.members]
                line = done % config.log_every == 0 or done == total
                look = config.validate_every is not None and done % config.validate_every == 0
                stop = self.engine.run(batches, step=done - 1, rates=rates, look=line)
                while self.engine.notes:
                    progress.say(f"train_head: {self.engine.notes.pop(0)}.")
                bar.advance(config.batch_size)
                if look:
                    self._look(done)
                if line:
                    now = time.monotonic()
                    values_SMK = self._losses(done)
                    save = self.world.decides(done == total or now - saved >= config.checkpoint_seconds)
                    tensors = self.engine.state() if save else {}
                    try:
                        self._log(done, rates, values_SMK, (done - logged) * config.batch_size / (now - began))
                        bar.advance(0, loss=f"{float(values_SMK[:, 0, 0].mean()):.4f}")
                        if save and self.world.first:
                            save_state(self.folder, tensors, done, self.meaning)
                    except Exception as error:  # the first process alone writes: the others hear of it at the next step
                        self.engine.fail(error)
                    logged, began, saved = done, now, now if save else saved
                if stop:
                    self._stop(done, None if line else self._losses(done))
        self.engine.check()

    def _look(self, done: int) -> None:
        """Write what the heads are worth on held-out rows; the first process alone, while the others wait."""
        with self.engine.averaged():
            try:
                for member, log in zip(self.members, self.looks, strict=True) if self.world.first else ():
                    log.append({"step": done, **self.validation.look(member.head)})
                    member.head.train()
            except Exception as error:  # the others hear of it at the next step
                self.engine.fail(error)

    @cached_property
    def validation(self) -> Validation:
        """The held-out rows, read when they are first needed."""
        assert self.keep is not None
        rows, needs = self.config.validation_rows, self.members[0].head.needs
        return Validation(self.store, self.keep, needs, rows=rows, device=self.device)

    def _stop(self, done: int, losses_SMK: Tensor | None) -> None:
        """Save the state at once, with the losses that are not logged yet, and leave together with all processes."""
        with self.world.together():
            self.engine.check()
        tensors = self.engine.state()
        with self.world.together():
            if self.world.first:
                save_state(self.folder, tensors, done, self.meaning, losses_SMK)
        raise Interrupted

    def _losses(self, done: int) -> Tensor:
        """(S, M, K) of the steps since the last line of the log.

        They are looked at here and not every step, because a look makes a GPU wait.
        """
        values_SMK = self.engine.losses.take()
        refuse_divergence(done, values_SMK[..., 0], self.members, self.reader)
        return values_SMK

    def _log(self, done: int, rates: Sequence[float], values_SMK: Tensor, speed: float) -> None:
        """Write a line for each member."""
        for place, log in enumerate(self.logs if self.world.first else ()):
            facts = {"step": done, "samples": done * self.config.batch_size, "lr": rates[place]}
            parts = zip(self.engine.losses.names, values_SMK[:, place].unbind(1), strict=True)
            means = {name: float(value_S.mean()) for name, value_S in parts}
            log.append({**facts, **means, "samples_per_second": round(speed, 1)})

    def _metrics(self, member: Member, log: TrainingLog) -> dict[str, float]:
        left_out = ("step", "samples", "lr", "samples_per_second")
        values = {name: value for name, value in log.rows()[-1].items() if name not in left_out}
        if self.keep is not None:
            found = self.validation.look(member.head)
            values |= {name: value for name, value in found.items() if math.isfinite(value)}
        return values
