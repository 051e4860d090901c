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
from pipeline.metrics.nearest import Metric, nearest_neighbours
from pipeline.metrics.related import related_neighbours, relevant_of
from pipeline.metrics.undefined import Score, Undefined
from pipeline.relevance import Relevance


@dataclass(frozen=True, kw_only=True)
class Retrieval:
    """The nearest neighbour of each row, and whether it is right.

    Attributes:
        neighbour_N: int64 index of the nearest other labelled row; −1 where there is none (unlabelled rows, N = 1).
        correct_N: bool, the neighbour has the row's label; False where the row is not counted.
        counted_N: bool, the row is labelled and another row has its label.
        lone: rows that are the only one of their class. They stay in the database: they can mislead others.
        unlabelled: rows without a label; they are in no query and not in the database.

    Where a relation judges, read "is relevant" for "has its label", and "does not ask" for "is unlabelled".
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
    relevance: Relevance | None = None,
) -> Retrieval:
    """Find each labelled row's nearest other labelled row and judge it by the label, or by a relation.

    Args:
        embedding_ND: (N, D), finite.
        label_N: (N,) integers; negative = unlabelled.
        metric: see :func:`~pipeline.metrics.nearest.nearest_neighbours`.
        device: where the matrix products run; the result does not depend on it.
        relevance: of the rows; it says who asks, who may be found and what is right, and labels are not looked at.

    Raises:
        UserError: lengths differ, or the embedding is not finite.
    """
    if relevance is not None:
        near_N1 = related_neighbours(embedding_ND, relevance, count=1, metric=metric, device=device)
        return judge_related(relevance, near_N1[:, 0])
    neighbour_N1 = labelled_neighbours(embedding_ND, label_N, count=1, metric=metric, device=device)
    return judge(label_N, neighbour_N1[:, 0])


def labelled_neighbours(
    embedding_ND: NDArray[np.floating],
    label_N: NDArray[np.integer],
    *,
    count: int,
    metric: Metric = "cosine",
    device: torch.device | str = "cpu",
) -> NDArray[np.int64]:
    """Each labelled row's ``count`` nearest other labelled rows, (N, count) int64, nearest first.

    −1 where there are no more, and for unlabelled rows, which are neither asked for nor found. Args and errors are
    those of :func:`retrieve`.
    """
    same_length(embedding=embedding_ND, label=label_N)
    labelled_L = np.flatnonzero(label_N >= 0)
    everyone = len(labelled_L) == len(label_N)
    rows_LD = embedding_ND if everyone else embedding_ND[labelled_L]
    nearest_LC = nearest_neighbours(rows_LD, count=count, metric=metric, device=device)
    if everyone:
        return nearest_LC
    neighbour_NC = np.full((len(label_N), count), -1, dtype=np.int64)
    neighbour_NC[labelled_L] = np.where(nearest_LC >= 0, np.append(labelled_L, -1)[nearest_LC], -1)
    return neighbour_NC


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


def judge_related(relevance: Relevance, neighbour_N: NDArray[np.int64]) -> Retrieval:
    """Judge given neighbours (int64, −1 = none) by a relation of the rows."""
    asked_N = relevance.asked_N
    lone_N = asked_N & (relevance.counts() == 0)
    counted_N = asked_N & ~lone_N & (neighbour_N >= 0)
    return Retrieval(
        neighbour_N=neighbour_N,
        correct_N=counted_N & relevant_of(relevance, neighbour_N[:, None])[:, 0],
        counted_N=counted_N,
        lone=int(lone_N.sum()),
        unlabelled=int((~asked_N).sum()),
    )
