"""How probes are fitted, and which fold a sample belongs to.

Task losses for training heads must not come from a classifier that was fitted on the very row: those would be small
everywhere. So the rows are split into folds by a hash of the sample key (all views of a row share its fold), and what
is said of a row comes from the probe that never saw its fold. Copies of one image under several keys are not found.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from pipeline.config import config
from pipeline.errors import UserError
from pipeline.representation_store.tally import tally

if TYPE_CHECKING:
    from pipeline.representation_store import RepresentationStore

Positive = Annotated[int, Field(ge=1)]


@config
class ProbeSettings:
    """Everything that decides the probes."""

    later: ClassVar[frozenset[str]] = frozenset({"shots", "shots_seed"})

    # Folds; each fold's rows are scored by the probe of all other folds.
    folds: Annotated[int, Field(ge=2, le=100)] = 5
    # L2 penalties that are tried; exact: from strong to weak, until the held-out loss rises.
    l2: Annotated[tuple[Annotated[float, Field(gt=0)], ...], Field(min_length=1)] = (
        1.0,
        0.3,
        0.1,
        0.03,
        0.01,
        0.003,
        0.001,
    )
    # Share of a probe's training rows (stream: of max_rows) on which its penalty is chosen.
    held_out: Annotated[float, Field(gt=0, lt=1)] = 0.2
    # Views that the probes are fitted on; null = all. All views are scored.
    views: Annotated[tuple[str, ...], Field(min_length=1)] | None = None
    # Rows, drawn by key and held in memory as float32, that exact fits at most and stream chooses its penalty on.
    max_rows: Annotated[int, Field(ge=2)] = 50_000
    # Of the assignment to folds, and of the order of rows.
    seed: Annotated[int, Field(ge=0, lt=1 << 31)] = 0
    # Few-shot: probes are fitted on so many rows of each class alone, the very ones of train_head.shots; null = on all.
    shots: Positive | None = None
    # Another one chooses other rows.
    shots_seed: Annotated[int, Field(ge=0, lt=1 << 31)] = 0

    # exact: L-BFGS on rows in memory; stream: all folds in passes over the store; auto: exact where it needs no more
    # than memory_gb for all rows.
    solver: Literal["auto", "exact", "stream"] = "auto"
    # 10⁹ bytes; larger stores are streamed.
    memory_gb: Annotated[float, Field(gt=0)] = 4.0
    # exact: bound on the L-BFGS iterations of a fit.
    max_iterations: Positive = 200
    # stream: how often each row is seen, each time in another view; null = once in each view.
    passes: Positive | None = None
    # stream: least number of steps, whatever the passes.
    min_steps: Positive = 2000
    # stream: rows a step.
    batch_size: Positive = 4096
    # stream: Adam's peak rate at a width of 1; it is divided by √width.
    lr: Annotated[float, Field(gt=0)] = 0.3
    # stream: rows that are mixed with each other; two windows of one view are in memory.
    window: Positive = 1 << 18


def share_of(key: str, what: str, seed: int) -> float:
    """A number in [0, 1) that depends on the arguments alone, uniform over keys."""
    mark = hashlib.blake2b(f"{seed}/{what}/{key}".encode(), digest_size=7).digest()
    return int.from_bytes(mark, "big") / 2**56


def fold_of(key: str, settings: ProbeSettings) -> int:
    """The fold of a sample."""
    return int(share_of(key, "fold", settings.seed) * settings.folds)


def view_indices(store: RepresentationStore, settings: ProbeSettings) -> list[int]:
    """The views that probes are fitted on, as places in the store.

    Raises:
        UserError: the store has no such view.
    """
    have = store.layout.views
    unknown = [view for view in settings.views or () if view not in have]
    if unknown:
        raise UserError(f"probe.views: the store has no view '{unknown[0]}'. It has: {', '.join(have)}.")
    return [have.index(view) for view in settings.views or have]


def exact_bytes(rows: int, views: int, width: int, classes: int) -> int:
    """Memory that the exact solver needs for so many rows.

    Float32: the features, three matrices of logits (logits, log-softmax, gradient), and what L-BFGS keeps: ten pairs
    of vectors as long as the weights, and half a dozen more.
    """
    return 4 * (rows * views * (width + 3 * classes) + 26 * classes * width)


def is_streamed(store: RepresentationStore, settings: ProbeSettings) -> bool:
    """Whether the probes of ``store`` are fitted in passes over it, rather than on rows in memory."""
    if settings.solver != "auto":
        return settings.solver == "stream"
    rows, views = tally(store.path).rows, len(settings.views or store.layout.views)
    if settings.shots is not None:
        rows = min(rows, settings.shots * len(store.class_names))
    return exact_bytes(rows, views, store.layout.width, len(store.class_names)) > settings.memory_gb * 1e9
