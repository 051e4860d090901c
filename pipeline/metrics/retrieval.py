"""Recall@1: is the nearest other image of the same class? (URL, Sec. 3.1 and Alg. 1; thesis Sec. 4.3.)

Deviations from the authors' code, which drops column 0 of a top-k as "self": self is left out by index, ties go to the
lowest index, and what cannot be judged is left out and counted.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from pipeline.metrics.checks import same_length
from pipeline.metrics.nearest import Metric, nearest_neighbour
from pipeline.metrics.undefined import Score, Undefined


@dataclass(frozen=True, kw_only=True)
class Retrieval:
    """The nearest neighbour of each row, and whether it is right.

    Attributes:
        neighbour_N: int64 index of the nearest other labelled row; −1 where there is none (unlabelled rows, N = 1).
        correct_N: bool, the neighbour has the row's label; False where the row is not counted.
        counted_N: bool, the row is labelled and another row has its label.
        lone: rows that are the only one of their class. They stay in the database: they can mislead others.
        unlabelled: rows without a label; they are in no query and not in the database.
    """

    neighbour_N: NDArray[np.int64]
    correct_N: NDArray[np.bool_]
    counted_N: NDArray[np.bool_]
    lone: int
    unlabelled: int

    @property
    def counted(self) -> int:
        """How many rows are judged."""
        return int(self.counted_N.sum())

    @property
    def recall_at_1(self) -> Score:
        """Share of the counted rows whose neighbour is right, in [0, 1]."""
        if self.counted == 0:
            return Undefined(f"no row has another row of its class ({self.lone} lone, {self.unlabelled} unlabelled)")
        return int(self.correct_N.sum()) / self.counted


def retrieve(
    embedding_ND: NDArray[np.floating],
    label_N: NDArray[np.integer],
    *,
    metric: Metric = "cosine",
    device: torch.device | str = "cpu",
) -> Retrieval:
    """Find each labelled row's nearest other labelled row and judge it by the label.

    Args:
        embedding_ND: (N, D), finite.
        label_N: (N,) integers; negative = unlabelled.
        metric: see :func:`~pipeline.metrics.nearest.nearest_neighbour`.
        device: where the matrix products run; the result does not depend on it.

    Raises:
        UserError: lengths differ, or the embedding is not finite.
    """
    same_length(embedding=embedding_ND, label=label_N)
    labelled_L = np.flatnonzero(label_N >= 0)
    everyone = len(labelled_L) == len(label_N)
    nearest_L = nearest_neighbour(embedding_ND if everyone else embedding_ND[labelled_L], metric=metric, device=device)
    neighbour_N = np.full(len(label_N), -1, dtype=np.int64)
    found_L = nearest_L >= 0
    neighbour_N[labelled_L[found_L]] = labelled_L[nearest_L[found_L]]
    return judge(label_N, neighbour_N)


def judge(label_N: NDArray[np.integer], neighbour_N: NDArray[np.int64]) -> Retrieval:
    """Judge given neighbours (int64, −1 = none) by the labels (negative = unlabelled)."""
    labelled_N = label_N >= 0
    _, class_N, rows_C = np.unique(label_N, return_inverse=True, return_counts=True)
    lone_N = labelled_N & (rows_C[class_N] == 1) if len(label_N) else labelled_N
    counted_N = labelled_N & ~lone_N & (neighbour_N >= 0)
    correct_N = counted_N.copy()
    correct_N[counted_N] = label_N[neighbour_N[counted_N]] == label_N[counted_N]
    return Retrieval(
        neighbour_N=neighbour_N,
        correct_N=correct_N,
        counted_N=counted_N,
        lone=int(lone_N.sum()),
        unlabelled=int((~labelled_N).sum()),
    )
