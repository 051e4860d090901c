"""A run: learn the posteriors of a process from pairs of inputs, and compare them with the true ones.

Shape suffixes: N inputs, X their width.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.reproductions.controlled.encoder import Encoder
from benchmarks.reproductions.controlled.losses import Loss, loss_of, points
from benchmarks.reproductions.controlled.process import Process
from benchmarks.reproductions.controlled.scoring import evaluate
from benchmarks.reproductions.controlled.settings import Settings
from benchmarks.reproductions.runs import Saved
from pipeline.distributions import VonMisesFisher
from pipeline.progress import Progress


@dataclass(frozen=True, kw_only=True)
class Phase:
    """What is learnt, for how long, by which loss."""

    steps: int
    lr: float
    parameters: list[nn.Parameter]
    loss: Loss


def run(settings: Settings, state: Path, progress: Progress) -> dict[str, Any]:
    """Train and evaluate; goes on at ``state`` if there is one."""
    started = time.process_time()
    process = make_process(settings)
    encoder = Encoder(settings, torch.Generator().manual_seed(settings.seed))
    before = train(settings, encoder, process, Saved(state), progress)
    scores = evaluate(process, encoder, settings.evaluated, settings.seed, certainty=settings.method != "info_nce")
    return {"scores": scores, "cpu_seconds": round(before + time.process_time() - started, 1)}


def make_process(settings: Settings) -> Process:
    """The process of a seed."""
    return Process(
        dimension=settings.dimension,
        least=settings.least or math.inf,
        largest=settings.largest or math.inf,
        family=settings.family,
        positives=settings.positives,
        kappa_pos=settings.kappa_pos,
        seed=settings.seed,
        spread_steps=settings.spread_steps,
    )


def phases_of(settings: Settings, encoder: Encoder) -> list[Phase]:
    """Directions first, then κ̂ alone; or all at once where the directions have no phase of their own."""
    direction, concentration = (list(part.parameters()) for part in (encoder.direction, encoder.concentration))
    phases = []
    if settings.start_temperature is not None:
        loss = points(settings.start_temperature)
        phases.append(Phase(steps=settings.start_steps, lr=settings.start_lr, parameters=direction, loss=loss))
        direction = []
    if settings.method == "info_nce":
        concentration = []
    phases.append(
        Phase(steps=settings.steps, lr=settings.lr, parameters=direction + concentration, loss=loss_of(settings))
    )
    return phases


def train(settings: Settings, encoder: Encoder, process: Process, saved: Saved, progress: Progress) -> float:
    """Run the phases; the processor seconds that were spent before, on what was saved."""
    phases = phases_of(settings, encoder)
    saved.restore(encoder, settings.seed)
    total = sum(phase.steps for phase in phases)
    bar = progress.bar(f"{settings.method}, seed {settings.seed}", total, "step", initial=saved.step)
    passed = 0
    for phase in phases:
        _only(phase.parameters, encoder)
        optimizer = torch.optim.Adam(phase.parameters)
        if passed < saved.step < passed + phase.steps:
            saved.restore_optimizer(optimizer)
        for step in range(max(saved.step - passed, 0), phase.steps):
            optimizer.param_groups[0]["lr"] = phase.lr * (1 + math.cos(math.pi * step / phase.steps)) / 2
            x_NX = torch.cat([process.pairs(settings.batch), process.inputs(settings.negatives)])
            bar.advance(loss=f"{_step(phase.loss, encoder, optimizer, x_NX, 2 * settings.batch):.3f}")
            saved.keep(passed + step + 1, encoder, optimizer)
        passed += phase.steps
    bar.close()
    return saved.before


def _only(parameters: list[nn.Parameter], encoder: Encoder) -> None:
    """Nothing else has a gradient."""
    encoder.requires_grad_(False)
    for parameter in parameters:
        parameter.requires_grad_(True)


def _step(loss: Loss, encoder: Encoder, optimizer: torch.optim.Optimizer, x_NX: Tensor, paired: int) -> float:
    """One update; the first ``paired`` inputs are pairs, the others negatives."""
    both = encoder(x_NX)
    posterior, negatives = (
        VonMisesFisher(both.loc[part], both.concentration[part], validate_args=False)
        for part in (slice(paired), slice(paired, None))
    )
    value = loss(posterior, negatives)
    optimizer.zero_grad()
    value.backward()
    optimizer.step()
    return value.item()
