"""A run: a network of Fashion-MNIST, which is trained if no run before has needed it, and its scores.

Several rows share the points of a seed: what is added to them (variances, a posterior after training, other members)
does not change them. So trained networks are kept beside the results, in ``networks/``.

Shape suffixes: B images of a batch.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from benchmarks.reproductions.lam_fashion.images import Images, held_out, load_fashion, load_strangers
from benchmarks.reproductions.lam_fashion.model import Dropout, Ensemble, Hedged, Laplacian, Network, Points, Spread
from benchmarks.reproductions.lam_fashion.scoring import evaluate
from benchmarks.reproductions.lam_fashion.settings import Settings, deciding
from benchmarks.reproductions.runs import Saved
from pipeline.digests import digest
from pipeline.files import atomic_file
from pipeline.heads.base import RepresentationBatch
from pipeline.progress import Progress
from pipeline.training.updates import follow


def run(settings: Settings, state: Path, progress: Progress, *, fashion: Path, digits: Path) -> dict[str, Any]:
    """Train what is not trained yet, and evaluate; goes on where a training was stopped."""
    parts = load_fashion(fashion)
    learnt, kept = held_out(parts["train"], settings.held_out, settings.data_seed)
    trainer = Trainer(learnt, state.parent / "networks", progress)
    network = trainer.network(settings).eval()
    began = time.process_time()
    if settings.scored_on == "held_out":
        scored, strangers = kept.some(settings.evaluated, 0), None
    else:
        scored, strangers = (
            parts["test"].some(settings.evaluated, 0),
            load_strangers(digits).some(settings.evaluated, 0),
        )
    found = evaluate(network, scored, strangers, settings, progress)
    return {**found, "cpu_seconds": round(trainer.seconds + time.process_time() - began, 1)}


class Trainer:
    """Makes networks, or finds them trained; ``seconds`` of processor time is what they have cost, whenever it was."""

    def __init__(self, images: Images, folder: Path, progress: Progress) -> None:
        self.images, self.folder, self.progress, self.seconds = images, folder, progress, 0.0

    def network(self, settings: Settings) -> Network:
        """What the method asks for."""
        rows, method = len(self.images), settings.method
        if method == "deterministic":
            return self._points(settings)
        if method == "deep_ensemble":
            seeds = range(settings.members * settings.seed, settings.members * (settings.seed + 1))
            return Ensemble([self._points(replace(settings, seed=seed)) for seed in seeds])
        if method == "pfe":
            made: Network = Spread(self._points(settings), settings)
            return self._trained(made, settings, "pfe", settings.spread_steps)
        if method == "hib":
            return self._trained(Hedged(settings), settings, "hib", settings.steps)
        if method == "mc_dropout":
            made = Dropout(settings, "post_hoc", rows=rows, dropout=settings.dropout)
            return self._trained(made, settings, "dropout", settings.steps)
        if method == "lam_online":
            return self._trained(Laplacian(settings, "online", rows=rows), settings, "online", settings.steps)
        laplacian = Laplacian(settings, "post_hoc", rows=rows)
        laplacian.load_state_dict(self._points(settings).state_dict())
        self._finalise(laplacian.eval(), settings)
        return laplacian

    def _points(self, settings: Settings) -> Points:
        made = Points(settings, "post_hoc", rows=len(self.images))
        self._trained(made, settings, "points", settings.steps)
        return made

    def _trained(self, network: Network, settings: Settings, kind: str, steps: int) -> Network:
        path = self.folder / f"{kind}-{settings.seed}-{digest(deciding(settings, kind))[:12]}.pt"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            state = path.with_suffix(".state")
            seconds = train(
                network, self.images, settings, steps, f"{kind}, seed {settings.seed}", state, self.progress
            )
            with atomic_file(path) as stream:
                torch.save({"network": network.state_dict(), "seconds": seconds}, stream)
            state.unlink(missing_ok=True)
        memory = torch.load(path, weights_only=True)
        network.load_state_dict(memory["network"])
        self.seconds += memory["seconds"]
        return network

    def _finalise(self, network: Laplacian, settings: Settings) -> None:
        """The Hessian of the mean weights."""
        before, images = time.process_time(), self.images.some(settings.curvature_images, settings.seed)
        bar = self.progress.bar("Hessian", len(images), "image")

        def batches() -> Iterator[RepresentationBatch]:
            for place_B in torch.arange(len(images)).split(settings.batch):
                some = images.of(place_B)
                feature_BD = network.body(some.pixels())
                bar.advance(len(place_B))
                yield RepresentationBatch(representation_BVD=feature_BD[:, None], row_B=place_B, label_B=some.label_I)

        torch.manual_seed(settings.seed)
        network.head.finalise(batches())
        bar.close()
        self.seconds += time.process_time() - before


def train(
    network: Network, images: Images, settings: Settings, steps: int, name: str, state: Path, progress: Progress
) -> float:
    """Run all steps, from what is saved in ``state`` on; the processor seconds that they took."""
    running = network.running
    followed = {id(parameter) for parameter, _ in running}
    learnt = [p for p in network.parameters() if p.requires_grad and id(p) not in followed]
    optimizer, saved = torch.optim.RMSprop(learnt, lr=settings.lr), Saved(state)
    saved.restore(network, settings.seed)
    saved.restore_optimizer(optimizer)
    network.train()
    bar = progress.bar(name, steps, "step", initial=saved.step)
    for step in range(saved.step, steps):
        optimizer.param_groups[0]["lr"] = settings.lr * (1 + math.cos(math.pi * step / steps)) / 2
        some = images.of(torch.randint(len(images), (settings.batch,)))
        network.zero_grad()
        loss = network.loss(some.pixels(), some.label_I)
        loss.backward()
        optimizer.step()
        follow(running)
        bar.advance(loss=f"{loss.item():.3f}")
        saved.keep(step + 1, network, optimizer)
    bar.close()
    return saved.seconds
