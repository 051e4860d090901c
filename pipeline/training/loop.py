"""The one loop that trains every head: from a representation store to one folder a seed.

All seeds train side by side, in one pass over the store. A run is a function of the store, the head's config and the
training config; killed at any moment, the same call goes on and ends with the same weights (bit for bit on a CPU with
the same number of threads).
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any

import numpy as np
import torch

from pipeline.config import meaning
from pipeline.digests import digest
from pipeline.errors import UserError
from pipeline.heads import make_head
from pipeline.heads.base import Head, Summary
from pipeline.places import Place
from pipeline.progress import Progress
from pipeline.representation_store import RepresentationStore
from pipeline.representation_store.reader import BatchReader, Reading
from pipeline.training.checkpoints import describe_head, save_head
from pipeline.training.config import TrainingConfig
from pipeline.training.holdout import rank_correlation, training_rows
from pipeline.training.log import TrainingLog
from pipeline.training.members import Member, Stepped, seed_generators
from pipeline.training.schedule import learning_rate
from pipeline.training.state import load_state, remove_state, save_state

LOG = "log.csv"  # in the folder of each seed


class TrainingDivergedError(UserError):
    """A loss or a weight is no longer finite; the message says at which step and on which rows."""


def seed_folder(folder: Place, seed: int) -> Place:
    """Where the head of a seed lies within the folder of its run."""
    return folder / f"seed-{seed}"


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
) -> None:
    """Train one head for each seed and save it in ``<folder>/seed-<seed>``; go on where an earlier call was cut off.

    Args:
        store: rows to train on.
        head: ``{kind, …}`` as for :func:`pipeline.heads.make_head`.
        config: of the training; a head that needs none is prepared and saved.
        summary: of ``store``, see :func:`pipeline.training.summary.summarise`.
        folder: of this run.
        progress: told of samples, loss and rate.

    Raises:
        UserError: the store lacks what the head needs, or ``folder`` holds the state of another run.
        TrainingDivergedError: a loss or a weight is not finite any more.
    """
    heads = [make_head(head, seed=seed) for seed in config.seeds]
    for one in heads:
        one.prepare(summary)
    trained = heads[0].needs.training
    metrics: Sequence[Mapping[str, float]] = [{} for _ in heads]
    if trained:
        metrics = _Run(store, heads, config, folder).run(progress)
    for one, values in zip(heads, metrics, strict=True):
        save_head(
            seed_folder(folder, one.seed),
            one.eval(),
            summary,
            store=store_digest(store),
            training=meaning(config) if trained else {},
            metrics=values,
        )
    remove_state(folder)


class _Run:
    def __init__(self, store: RepresentationStore, heads: list[Head], config: TrainingConfig, folder: Place) -> None:
        self.store, self.config, self.folder = store, config, folder
        self.device = _device(config.device)
        self.keep = training_rows(store, config.validation_share)
        reading = Reading(
            batch_size=config.batch_size,
            seed=config.data_seed,
            window=config.window,
            memory=int(config.memory_gb * 1e9),
            threads=config.threads,
            device=self.device,
        )
        self.reader = BatchReader(store, heads[0].needs, reading, keep=self.keep)
        self.members = [Member(head, config, self.device) for head in heads]
        self.logs = [TrainingLog(seed_folder(folder, head.seed) / LOG) for head in heads]
        self.meaning = {
            "head": describe_head(heads[0]),
            "training": meaning(config),
            "store": store_digest(store),
        }

    def run(self, progress: Progress) -> list[dict[str, float]]:
        """Train to the end; final metrics of each member."""
        start = load_state(self.folder, self.members, self.meaning)
        for log in self.logs:
            log.cut(start)
        devices = [self.device] if self.device.type == "cuda" else []
        with torch.random.fork_rng(devices=devices):  # members draw from the global generator; the caller's is kept
            self._steps(start, progress)
            for member in self.members:
                seed_generators(member.head.seed, self.device)
                member.head.eval().finalise(self.reader.once())
        return [self._metrics(member, log) for member, log in zip(self.members, self.logs, strict=True)]

    def _steps(self, start: int, progress: Progress) -> None:
        config, total = self.config, self.config.total_steps
        bar = progress.bar("train_head", total * config.batch_size, "samples", initial=start * config.batch_size)
        pending: list[list[Stepped]] = []
        began = saved = time.monotonic()
        with closing(self.reader.batches(start, total)) as batches, closing(bar):  # type: ignore[type-var]
            for step, batch in enumerate(batches, start):
                rate = learning_rate(config, step)
                pending.append([member.step(batch, step=step, rate=rate) for member in self.members])
                bar.advance(config.batch_size)
                done = step + 1
                if done % config.log_every and done != total:
                    continue
                now = time.monotonic()
                loss = self._log(done, rate, pending, len(pending) * config.batch_size / (now - began))
                bar.advance(0, loss=f"{loss:.4f}")
                pending, began = [], now
                if done == total or now - saved >= config.checkpoint_seconds:
                    save_state(self.folder, self.members, done, self.meaning)
                    saved = now

    def _log(self, done: int, rate: float, pending: list[list[Stepped]], speed: float) -> float:
        """Write a line for each member; the mean loss of the first one.

        Losses are looked at here and not every step, because a look makes a GPU wait.
        """
        loss_SM = torch.stack([torch.stack([stepped.loss for stepped in of_step]) for of_step in pending]).cpu()
        self._refuse_divergence(done, loss_SM)
        for place, log in enumerate(self.logs):
            parts = {
                name: float(torch.stack([of_step[place].parts[name] for of_step in pending]).float().mean())
                for name in pending[0][place].parts
            }
            mean = float(loss_SM[:, place].mean())
            facts = {"step": done, "samples": done * self.config.batch_size, "lr": rate, "loss": mean}
            log.append({**facts, **parts, "samples_per_second": round(speed, 1)})
        return float(loss_SM[:, 0].mean())

    def _refuse_divergence(self, done: int, loss_SM: torch.Tensor) -> None:
        bad_SM = ~loss_SM.isfinite()
        for place, member in enumerate(self.members):
            if not all(bool(parameter.isfinite().all()) for parameter in member.head.parameters()):
                bad_SM[-1, place] |= not bad_SM[:, place].any()  # the last step's loss was fine, its update was not
        if not bad_SM.any():
            return
        first, place = bad_SM.nonzero()[0].tolist()
        step = done - len(loss_SM) + first
        rows, _ = self.reader.sampler.batch(step)
        keys = ", ".join(f"{key} (row {row})" for row, key in zip(rows[:4], self._keys(rows[:4]), strict=True))
        raise TrainingDivergedError(
            f"train_head: training diverged at step {step} for seed {self.members[place].head.seed}: loss "
            f"{float(loss_SM[first, place]):g}, or a weight is not finite. Its batch begins with {keys}. "
            "Lower train_head.base_lr or set train_head.precision=fp32; `submit verify stage=cache` checks the rows."
        )

    def _keys(self, rows: np.ndarray[Any, np.dtype[np.int64]]) -> list[str]:
        counts = self.store.counts()
        units, ends = list(counts), np.cumsum(list(counts.values()))
        keys = []
        for row in rows.tolist():
            place = int(np.searchsorted(ends, row, side="right"))
            at = row - int(ends[place]) + counts[units[place]]
            keys.append(self.store.read("key", units[place], start=at, stop=at + 1)[0].decode())
        return keys

    def _metrics(self, member: Member, log: TrainingLog) -> dict[str, float]:
        left_out = ("step", "samples", "lr", "samples_per_second")
        values = {name: value for name, value in log.rows()[-1].items() if name not in left_out}
        if self.keep is not None and member.head.needs.task_loss:
            values["validation_rank_correlation"] = rank_correlation(member.head, self.store, self.keep, self.device)
        return values


def _device(name: str) -> torch.device:
    """The device that ``name`` means.

    Raises:
        UserError: there is no such device here.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise UserError(f"train_head.device: '{name}' is no device. Valid: auto, cpu, cuda, cuda:<index>.") from None
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise UserError(f"train_head.device: '{name}' is not there; torch sees {torch.cuda.device_count()} GPUs.")
    return device
