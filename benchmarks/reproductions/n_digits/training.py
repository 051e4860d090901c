"""A run: train an embedding of N-digit MNIST and score it on clean and on corrupt test images.

Shape suffixes: B images of a batch.
"""

from __future__ import annotations

import math
import time
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.reproductions.digits import load_digits, split
from benchmarks.reproductions.n_digits.images import Images, classes, make_images
from benchmarks.reproductions.n_digits.model import Embedder
from benchmarks.reproductions.n_digits.scoring import evaluate
from benchmarks.reproductions.n_digits.settings import Settings
from benchmarks.reproductions.runs import Saved
from pipeline.progress import Progress


def run(settings: Settings, state: Path, progress: Progress, *, data: Path) -> dict[str, Any]:
    """Train and evaluate; goes on at ``state`` if there is one."""
    started = time.process_time()
    sets = make_sets(settings, data)
    embedder = make_embedder(settings)
    before = train(settings, embedder, sets["train"], Saved(state), progress)
    embedder.eval()
    scores = {name: evaluate(embedder, sets[name], settings.queries, settings.seed) for name in ("clean", "corrupt")}
    seconds = round(before + time.process_time() - started, 1)
    return {
        "scores": scores,
        "match": embedder.match_parameters(),
        "shown": shown(embedder, sets),
        "cpu_seconds": seconds,
    }


def make_sets(settings: Settings, data: Path) -> dict[str, Images]:
    """Training images, and test images of digits of their own: the same ones without and with black squares."""
    digits, seed, count = load_digits(data), settings.data_seed, settings.digits
    train, test = split(digits, settings.test_share, seed)
    seen, _ = classes(count, round(settings.seen_share * 10**count), seed)
    make = partial(make_images, digits, labels=seen, count=count)
    made = {
        "train": make(use=train, size=settings.train_images, occlusion=settings.occlusion, generator=_generator(seed))
    }
    for name, occlusion in (("clean", 0.0), ("corrupt", 1.0)):
        made[name] = make(use=test, size=settings.test_images, occlusion=occlusion, generator=_generator(seed + 1))
    return made


def _generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def make_embedder(settings: Settings) -> Embedder:
    """Before training."""
    return Embedder(
        method=settings.method,
        count=settings.digits,
        dimension=settings.dimension,
        beta=2 * settings.beta,  # the head counts the divergence of each row once; Eq. 8 counts both of a pair
        samples=settings.samples,
        partners=settings.partners,
        slope=settings.slope,
        channels=settings.channels,
        seed=settings.seed,
    )


def train(settings: Settings, embedder: Embedder, images: Images, saved: Saved, progress: Progress) -> float:
    """Run all steps; the processor seconds that were spent before, on what was saved."""
    optimizer = torch.optim.Adam(embedder.parameters())
    saved.restore(embedder, settings.seed)
    saved.restore_optimizer(optimizer)
    draw = Draw(images.label_I)
    name = f"{settings.method}, N = {settings.digits}, D = {settings.dimension}, seed {settings.seed}"
    bar = progress.bar(name, settings.steps, "step", initial=saved.step)
    for step in range(saved.step, settings.steps):
        optimizer.param_groups[0]["lr"] = settings.lr * (1 + math.cos(math.pi * step / settings.steps)) / 2
        batch = images.of(draw.groups(settings.batch // settings.group, settings.group))
        loss = embedder.loss(batch.pixels(), batch.label_I)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        bar.advance(loss=f"{loss.item():.3f}")
        saved.keep(step + 1, embedder, optimizer)
    bar.close()
    return saved.before


class Draw:
    """Groups of a class: every class with the same chance, any images of it."""

    def __init__(self, label_I: Tensor) -> None:
        self.order_I = torch.argsort(label_I, stable=True)
        self.start_C = torch.cat([torch.zeros(1, dtype=torch.long), torch.bincount(label_I).cumsum(0)])
        self.label_C = torch.unique(label_I)

    def groups(self, count: int, size: int) -> Tensor:
        """Places of images, (count · size,): neighbours of a group show the same number."""
        label_B = self.label_C[torch.randint(len(self.label_C), (count,))].repeat_interleave(size)
        start_B, end_B = self.start_C[label_B], self.start_C[label_B + 1]
        return self.order_I[start_B + (torch.rand(count * size) * (end_B - start_B)).long()]


def shown(embedder: Embedder, sets: dict[str, Images], count: int = 150) -> dict[str, Any]:
    """Means and standard deviations of some images' embeddings, for a plot; points have deviations of 0."""
    made: dict[str, Any] = {}
    for name in ("clean", "corrupt"):
        some = sets[name].of(torch.arange(min(count, len(sets[name]))))
        with torch.no_grad():
            loc_IKE, scale_IKE = embedder.components(embedder.body(some.pixels()))
        made[name] = {
            "label": some.label_I.tolist(),
            "loc": [[[round(v, 4) for v in row] for row in one] for one in loc_IKE.tolist()],
            "scale": [[[round(v, 4) for v in row] for row in one] for one in scale_IKE.tolist()],
        }
    return made
