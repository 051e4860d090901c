"""What is known of every row before a representation is read: its label, its fold, and whether it is drawn.

All of it is a few bytes a row, so it is held in memory for any store. Shape: N rows of the store.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipeline.errors import UserError
from pipeline.interruption import stop_if_asked
from pipeline.probing.settings import ProbeSettings, fold_of, share_of
from pipeline.progress import Progress
from pipeline.representation_store import RepresentationStore
from pipeline.representation_store.selection import of_shots


@dataclass(frozen=True, kw_only=True)
class Rows:
    """The rows of a store, in its order.

    Attributes:
        label_N: int32, −1 = not fitted on.
        fold_N: int8.
        drawn_N: bool: the labelled rows, ``max_rows`` at most, on which the penalty is chosen.
        held_N: bool: of these, the ones that a penalty is judged by and not fitted on.
    """

    label_N: NDArray[np.int32]
    fold_N: NDArray[np.int8]
    drawn_N: NDArray[np.bool_]
    held_N: NDArray[np.bool_]

    def fitted(self, leave_out: int | None) -> int:
        """How many labelled rows lie outside a fold."""
        return int(((self.label_N >= 0) & (self.fold_N != (-1 if leave_out is None else leave_out))).sum())


def labels_to_fit(store: RepresentationStore, settings: ProbeSettings) -> NDArray[np.int32]:
    """(N,) labels of the rows that probes may be fitted on; −1: without a label, or none of the shots.

    Raises:
        UserError: all of them are of one class.
    """
    label_N = np.empty(sum(store.counts().values()), dtype=np.int32)
    for start, label_R in store.column("label"):
        label_N[start : start + len(label_R)] = label_R
    if settings.shots is not None:
        label_N[~of_shots(store, settings.shots, settings.shots_seed)] = -1
    classes, counts = np.unique(label_N[label_N >= 0], return_counts=True)
    if classes.size == 1 and counts[0] > 1:  # of a single row it is said that it is too few
        raise UserError(
            f"probe: all labelled rows in {store.path} are of one class, '{store.class_names[classes[0]]}'. A probe of "
            "one class is never wrong, so every task loss would be 0 and no head could learn from it. Cache images of "
            "two classes or more (dataset.split, dataset.class_list and min_images_per_class leave classes out)."
        )
    return label_N


def rows_of(store: RepresentationStore, settings: ProbeSettings, progress: Progress) -> Rows:
    """Read labels and keys, unit by unit.

    Raises:
        UserError: too few labelled rows to fit the probe of each fold, or to choose the penalty.
    """
    counts, label_N = store.counts(), labels_to_fit(store, settings)
    fold_N, held_N = np.empty(label_N.shape, np.int8), np.empty(label_N.shape, bool)
    rank_N = np.empty(label_N.shape, np.float64)
    bar, start = progress.bar("read keys", len(label_N), "rows"), 0
    for unit, count in counts.items():
        stop_if_asked()
        part = slice(start, start + count)
        keys = [key.decode() for key in store.read("key", unit)]
        fold_N[part] = [fold_of(key, settings) for key in keys]
        held_N[part] = [share_of(key, "held out", settings.seed) < settings.held_out for key in keys]
        rank_N[part] = [share_of(key, "rows", settings.seed) for key in keys]
        start += count
        bar.advance(count)
    bar.close()
    labelled_N = label_N >= 0
    drawn_N = labelled_N.copy()
    if labelled_N.sum() > settings.max_rows:
        last = np.partition(rank_N[labelled_N], settings.max_rows - 1)[settings.max_rows - 1]
        drawn_N &= rank_N <= last
    rows = Rows(label_N=label_N, fold_N=fold_N, drawn_N=drawn_N, held_N=held_N & drawn_N)
    _refuse_too_few(rows, store, settings)
    return rows


def what_helps(settings: ProbeSettings) -> str:
    """Where rows are too few."""
    return f"{'Cache more images' if settings.shots is None else 'Take more probe.shots'}, or set fewer probe.folds."


def _refuse_too_few(rows: Rows, store: RepresentationStore, settings: ProbeSettings) -> None:
    empty = [fold for fold in range(settings.folds) if not rows.fitted(fold)]
    if empty or not 0 < rows.held_N.sum() < rows.drawn_N.sum():
        raise UserError(
            f"probe: {int((rows.label_N >= 0).sum())} labelled rows in {store.path} are too few to fit a probe for "
            f"each of {settings.folds} folds and choose its penalty. {what_helps(settings)}"
        )
