"""The k nearest rows judged: R@k, mAP@k and k-NN accuracy.

- **R@k**: share of queries with a relevant row among their k nearest.
- **mAP@k**: mean of AP@k = Σ_{i ≤ k} P@i · rel_i / min(k, relevant rows), so 1 is reached also where a query has fewer
  relevant rows than k. mAP@1 is R@1. (Warburg et al., *Bayesian triplet loss*, Sec. 5, name it without a formula; this
  is that of TREC and of landmark retrieval.)
- **k-NN accuracy**: share of queries whose class is the most frequent among their k nearest; of equally frequent ones
  that whose first row is nearest.

Relevance need not be a class: :class:`Ranked` takes any, e.g. places within 25 m of each other.

Shape suffixes: N rows, C neighbours of a row, nearest first.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from pipeline.errors import UserError
from pipeline.metrics.checks import same_length
from pipeline.metrics.nearest import Metric
from pipeline.metrics.related import related_neighbours, relevant_of
from pipeline.metrics.retrieval import labelled_neighbours
from pipeline.metrics.undefined import Score, Undefined
from pipeline.relevance import Relevance


@dataclass(frozen=True, kw_only=True)
class Ranked:
    """The nearest rows of each row, and which of them are relevant to it.

    Attributes:
        neighbour_NC: int64 indices, nearest first; −1 where there are no more.
        relevant_NC: bool; False at −1.
        relevant_N: int64, relevant rows in the whole collection, the row itself left out.
        label_N: int64 class of each row, for :meth:`knn_accuracy`; negative = none.
    """

    neighbour_NC: NDArray[np.int64]
    relevant_NC: NDArray[np.bool_]
    relevant_N: NDArray[np.int64]
    label_N: NDArray[np.int64]

    def __post_init__(self) -> None:
        same_length(neighbour=self.neighbour_NC, relevant=self.relevant_NC, rows=self.relevant_N, label=self.label_N)

    @property
    def counted_N(self) -> NDArray[np.bool_]:  # noqa: N802 (a shape suffix)
        """Rows to which some other row is relevant; the rest cannot be right and are not judged."""
        return self.relevant_N > 0

    def found_within(self, k: int) -> NDArray[np.bool_]:
        """Whether a relevant row is among the k nearest of each row, (N,) bool.

        Raises:
            UserError: fewer than k neighbours are known.
        """
        return np.asarray(self._nearest(k).any(axis=1))

    def recall_at(self, k: int) -> Score:
        """R@k, in [0, 1].

        Raises:
            UserError: fewer than k neighbours are known.
        """
        return self._mean(self.found_within(k))

    def average_precision_at(self, k: int) -> NDArray[np.float64]:
        """AP@k of each row (N,), in [0, 1]; 0 for rows that are not counted.

        Raises:
            UserError: fewer than k neighbours are known.
        """
        relevant_NK = self._nearest(k)
        precision_NK = relevant_NK.cumsum(axis=1) / np.arange(1, k + 1)
        best_N = np.maximum(np.minimum(k, self.relevant_N), 1)
        return np.asarray((precision_NK * relevant_NK).sum(axis=1) / best_N)

    def mean_average_precision_at(self, k: int) -> Score:
        """mAP@k over the counted rows, in [0, 1]."""
        return self._mean(self.average_precision_at(k))

    def knn_accuracy(self, k: int) -> Score:
        """Share of the counted rows whose class wins the vote of its k nearest, in [0, 1].

        Undefined where a counted row has no class, as places have none.
        """
        self._nearest(k)
        if (without := int((self.label_N[self.counted_N] < 0).sum())) > 0:
            return Undefined(f"{without} of the judged rows have no class to vote for")
        near_NK = self.neighbour_NC[:, :k]
        label_NK = np.where(near_NK >= 0, self.label_N[near_NK], -1)
        same_NKK = (label_NK[:, :, None] == label_NK[:, None, :]) & (near_NK >= 0)[:, None, :]
        votes_NK = np.where(near_NK >= 0, same_NKK.sum(axis=2), 0)
        winner_N = label_NK[
            np.arange(len(label_NK)), votes_NK.argmax(axis=1)
        ]  # the first of the largest is the nearest
        return self._mean((winner_N == self.label_N) & (winner_N >= 0))

    def _nearest(self, k: int) -> NDArray[np.bool_]:
        if not 1 <= k <= self.relevant_NC.shape[1]:
            raise UserError(f"{k} neighbours are asked for, {self.relevant_NC.shape[1]} are known.")
        return self.relevant_NC[:, :k]

    def _mean(self, value_N: NDArray[np.generic]) -> Score:
        counted = int(self.counted_N.sum())
        if not counted:
            return Undefined(f"to none of {len(self.counted_N)} rows is another row relevant")
        return float(value_N[self.counted_N].mean(dtype=np.float64))


def rank(
    embedding_ND: NDArray[np.floating],
    label_N: NDArray[np.integer],
    *,
    count: int,
    metric: Metric = "cosine",
    device: torch.device | str = "cpu",
    relevance: Relevance | None = None,
) -> Ranked:
    """The ``count`` nearest other labelled rows of each labelled row; of the same class is relevant.

    Args:
        embedding_ND: (N, D), finite.
        label_N: (N,) integers; negative = unlabelled: neither asked for nor found.
        count: neighbours of a row.
        metric: see :func:`~pipeline.metrics.nearest.nearest_neighbours`.
        device: where the matrix products run; the result does not depend on it.
        relevance: says who asks, who may be found and what is relevant, in the place of the labels.

    Raises:
        UserError: lengths differ, or the embedding is not finite.
    """
    class_N = np.asarray(label_N, dtype=np.int64)
    if relevance is not None:
        near_NC = related_neighbours(embedding_ND, relevance, count=count, metric=metric, device=device)
        return Ranked(
            neighbour_NC=near_NC,
            relevant_NC=relevant_of(relevance, near_NC),
            relevant_N=relevance.counts(),
            label_N=class_N,
        )
    neighbour_NC = labelled_neighbours(embedding_ND, label_N, count=count, metric=metric, device=device)
    relevant_NC = (neighbour_NC >= 0) & (class_N[neighbour_NC] == class_N[:, None])
    _, place_N, rows_C = np.unique(class_N, return_inverse=True, return_counts=True)
    others_N = np.where(class_N >= 0, rows_C[place_N] - 1, 0) if len(class_N) else class_N
    return Ranked(neighbour_NC=neighbour_NC, relevant_NC=relevant_NC, relevant_N=others_N, label_N=class_N)
