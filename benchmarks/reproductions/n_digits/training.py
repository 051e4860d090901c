"""A run: train an embedding of N-digit MNIST and score it on clean and on corrupt test images."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.reproductions.digits import Digits, load_digits, split
from benchmarks.reproductions.n_digits.images import Images, classes, compose, make_images
from benchmarks.reproductions.n_digits.model import Embedder
from benchmarks.reproductions.n_digits.scoring import evaluate
from benchmarks.reproductions.n_digits.settings import Settings
from benchmarks.reproductions.runs import Saved
from pipeline.progress import Progress


def run(settings: Settings, state: Path, progress: Progress, *, data: Path) -> dict[str, Any]:
    """Train and evaluate; goes on at ``state`` if there is one."""
    started = time.process_time()
    parts = make_parts(settings, data)
    embedder = make_embedder(settings)
    before = train(settings, embedder, parts, Saved(state), progress)
    embedder.eval()
    scores = {
        name: evaluate(embedder, images, parts.tests["clean"], settings.queries, settings.seed)
        for name, images in parts.tests.items()
    }
    seconds = round(before + time.process_time() - started, 1)
    return {
        "scores": scores,
        "match": embedder.match_parameters(),
        "shown": shown(embedder, parts.tests),
        "cpu_seconds": seconds,
    }


@dataclass(frozen=True, kw_only=True)
class Parts:
    """What is trained on and what is tested.

    Attributes:
        digits: all of them.
        train: indices of those for training.
        seen: the numbers that are shown.
        tests: images of digits of their own: ``clean``, and ``corrupt``, the same ones with black squares.
    """

    digits: Digits
    train: Tensor
    seen: Tensor
    tests: dict[str, Images]


def make_parts(settings: Settings, data: Path) -> Parts:
    """Split the digits; of those for training some more, where settings are looked for."""
    digits, seed, count = load_digits(data), settings.data_seed, settings.digits
    train, test = split(digits, settings.test_share, seed)
    if settings.test_on == "validation":
        train, test = split(digits, settings.test_share, seed + 1, among=train)
    seen, _ = classes(count, round(settings.seen_share * 10**count), seed)
    make = partial(make_images, digits, test, seen, count=count, size=settings.test_images)
    tests = {
        name: make(occlusion=chance, generator=torch.Generator().manual_seed(seed + 1))
        for name, chance in (("clean", 0.0), ("corrupt", 1.0))
    }
    return Parts(digits=digits, train=train, seen=seen, tests=tests)


def make_embedder(settings: Settings) -> Embedder:
    """Before training."""
    return Embedder(
        method=settings.method,
        count=settings.digits,
        dimension=settings.dimension,
        beta=settings.beta,
        samples=settings.samples,
        partners=settings.partners,
        match_share=settings.match_share,
        slope=settings.slope,
        initial_scale=settings.initial_scale,
        channels=settings.channels,
        hidden=settings.hidden,
        seed=settings.seed,
    )


def train(settings: Settings, embedder: Embedder, parts: Parts, saved: Saved, progress: Progress) -> float:
    """Run all steps; the processor seconds that were spent before, on what was saved."""
    optimizer = torch.optim.Adam(embedder.parameters())
    saved.restore(embedder, settings.seed)
    saved.restore_optimizer(optimizer)
    draw = partial(
        compose,
        parts.digits,
        parts.train,
        parts.seen,
        count=settings.digits,
        drawn=settings.drawn,
        size=settings.batch,
        group=settings.group,
        occlusion=settings.occlusion,
        generator=torch.default_generator,
    )
    name = f"{settings.method}, N = {settings.digits}, D = {settings.dimension}, seed {settings.seed}"
    bar = progress.bar(name, settings.steps, "step", initial=saved.step)
    for step in range(saved.step, settings.steps):
        rise = min(1.0, (step + 1) / max(settings.warmup, 1))
        optimizer.param_groups[0]["lr"] = settings.lr * rise * (1 + math.cos(math.pi * step / settings.steps)) / 2
        loss = embedder.loss(draw())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        bar.advance(loss=f"{loss.item():.3f}")
        saved.keep(step + 1, embedder, optimizer)
    bar.close()
    return saved.before


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
