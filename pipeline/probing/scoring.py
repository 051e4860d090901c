"""What probes say of rows that they never saw, unit by unit, in memory that does not depend on the unit.

Shapes: N rows of a unit, V views, D width, C classes, F folds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import linear

from pipeline.caching.forward import classifier_scores
from pipeline.heads.base import LinearClassifier
from pipeline.probing.rows import labels_to_fit
from pipeline.probing.settings import ProbeSettings, fold_of
from pipeline.representation_store import SCORES, RepresentationStore

# The low bits of a matrix product depend on how many rows it has, so these decide the bytes. In memory: one part that
# is read, and of the logits four matrices (logits, log-softmax twice, exponentials).
READ_BYTES = 1 << 28  # of a unit's representations, as float32
LOGITS_BYTES = 1 << 26


def out_of_fold_scores(
    store: RepresentationStore, unit: int, folds: Sequence[LinearClassifier], settings: ProbeSettings
) -> dict[str, NDArray[Any]]:
    """What is said of a unit's rows by the probes that never saw them.

    Args:
        store: the rows.
        unit: a committed one.
        folds: the probe of each fold, on the device where scores are made.
        settings: of the probes.

    Returns:
        ``task_loss`` and ``entropy`` (n, V) float32 in nats, ``top1_correct`` (n, V) bool; as in the cache.
    """
    count, views = store.counts()[unit], len(store.layout.views)
    fold_N = np.array([fold_of(key.decode(), settings) for key in store.read("key", unit)], dtype=int)
    label_N = store.read("label", unit)
    scores = {name: np.empty((count, views), bool if name == "top1_correct" else np.float32) for name in SCORES}
    at_once = max(1, LOGITS_BYTES // (4 * views * len(store.class_names)))
    for first, representation_NVD in _parts(store, unit):
        for start in range(0, len(representation_NVD), at_once):
            part = representation_NVD[start : start + at_once]
            place = slice(first + start, first + start + len(part))
            for fold in np.unique(fold_N[place]):
                here = np.flatnonzero(fold_N[place] == fold)
                found = _scores(part[here], label_N[place][here], folds[fold])
                for name, value in found.items():
                    scores[name][place][here] = value.cpu().reshape(-1, views).numpy()
    return scores


def _scores(part_NVD: Tensor, label_N: NDArray[np.int32], classifier: LinearClassifier) -> dict[str, Tensor]:
    device = classifier.bias_C.device
    logits_NVC = linear(part_NVD.to(device), classifier.weight_CD, classifier.bias_C)
    labels = np.repeat(label_N, part_NVD.shape[1]).tolist()
    own_class = torch.arange(len(classifier.bias_C), device=device)
    return classifier_scores(logits_NVC.flatten(0, 1), labels, own_class)


def _parts(store: RepresentationStore, unit: int) -> Iterator[tuple[int, Tensor]]:
    """The representations of a unit, float32, in parts of whole chunks; each with the row it begins at."""
    layout, count = store.layout, store.counts()[unit]
    rows = READ_BYTES // (4 * len(layout.views) * layout.width)
    rows = max(rows // layout.chunk_rows, 1) * layout.chunk_rows
    for start in range(0, count, rows):
        yield start, torch.from_numpy(store.representation(unit, start=start, stop=start + rows))


class Census:
    """Counts and mean scores over the rows of a store, unit by unit."""

    def __init__(self, store: RepresentationStore, settings: ProbeSettings) -> None:
        self.store, self.settings = store, settings
        fitted_N, ends = labels_to_fit(store, settings) >= 0, np.cumsum(list(store.counts().values()))[:-1]
        self.fitted = dict(zip(store.counts(), np.split(fitted_N, ends), strict=True))
        self.rows = 0
        self.rows_FC = np.zeros((settings.folds, len(store.class_names)), np.int64)
        self.unlabelled = 0
        self.correct_V = np.zeros(len(store.layout.views), np.int64)
        self.loss_V = np.zeros(len(store.layout.views), np.float64)

    def add(self, unit: int) -> None:
        """Count a unit that is scored."""
        label_N = self.store.read("label", unit)
        labelled = np.flatnonzero(label_N >= 0)
        self.rows += len(labelled)
        self.unlabelled += len(label_N) - len(labelled)
        fitted = np.flatnonzero(self.fitted[unit])
        keys = self.store.read("key", unit)[fitted]
        fold_N = np.array([fold_of(key.decode(), self.settings) for key in keys], dtype=int)
        np.add.at(self.rows_FC, (fold_N, label_N[fitted]), 1)
        self.correct_V += self.store.read("top1_correct", unit)[labelled].sum(axis=0)
        self.loss_V += self.store.read("task_loss", unit)[labelled].sum(axis=0, dtype=np.float64)

    def facts(self) -> dict[str, Any]:
        """Out of fold: accuracy and loss of each view over labelled rows, and what there was too little of to fit."""
        views, rows_C, rows = self.store.layout.views, self.rows_FC.sum(axis=0), self.rows
        alone_C = (self.rows_FC == rows_C).any(axis=0) & (rows_C > 0)
        return {
            "out_of_fold_rows": rows,
            "unlabelled_rows": self.unlabelled,
            "classes_without_rows": int((rows_C == 0).sum()),
            "classes_within_one_fold": int(alone_C.sum()),  # the probe that scores their rows never saw the class
            "rows_of_classes_within_one_fold": int(rows_C[alone_C].sum()),
            "accuracy": dict(zip(views, (self.correct_V / rows).tolist(), strict=True)),
            "task_loss": dict(zip(views, (self.loss_V / rows).tolist(), strict=True)),
        }
