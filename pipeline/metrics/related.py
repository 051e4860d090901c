"""Neighbours where a relation says who asks, who may be found, and what is relevant (:mod:`pipeline.relevance`).

Shape suffixes: N rows, L rows that ask or may be found, C neighbours of a row, nearest first.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from pipeline.metrics.checks import same_length
from pipeline.metrics.nearest import Metric, nearest_neighbours
from pipeline.relevance import Relevance

WIDER = 4  # times as many neighbours are looked at where too few of them may be found


def related_neighbours(
    embedding_ND: NDArray[np.floating],
    relevance: Relevance,
    *,
    count: int,
    metric: Metric = "cosine",
    device: torch.device | str = "cpu",
) -> NDArray[np.int64]:
    """The ``count`` nearest rows that may be found of each row that asks, (N, count) int64, nearest first.

    −1 where there are no more, and for rows that do not ask. Rows that ask and are not found (queries beside a
    database) are passed over: so many neighbours are looked at that each row that asks has enough others.

    Raises:
        UserError: lengths differ, or the embedding is not finite.
    """
    same_length(embedding=embedding_ND, relevance=relevance.found_N)
    asked_N, found_N = relevance.asked_N, relevance.found_N
    part_L = np.flatnonzero(asked_N | found_N)
    asked_L, found_L = asked_N[part_L], found_N[part_L]
    enough_L = np.minimum(count, found_L.sum() - found_L)  # a row does not find itself
    width = count
    while True:
        near_LC = nearest_neighbours(embedding_ND[part_L], count=width, metric=metric, device=device)
        good_LC = (near_LC >= 0) & found_L[near_LC]
        if width >= len(part_L) - 1 or (good_LC.sum(axis=1) >= enough_L)[asked_L].all():
            break
        width = min(WIDER * width, len(part_L) - 1)
    first_LC = np.argsort(~good_LC, axis=1, kind="stable")[:, :count]
    chosen_LC = np.take_along_axis(np.where(good_LC, near_LC, -1), first_LC, axis=1)
    neighbour_NC = np.full((len(embedding_ND), count), -1, dtype=np.int64)
    rows_LC = np.where(chosen_LC >= 0, part_L[chosen_LC], -1) if len(part_L) else chosen_LC
    neighbour_NC[part_L[asked_L], : rows_LC.shape[1]] = rows_LC[asked_L]
    return neighbour_NC


def relevant_of(relevance: Relevance, neighbour_NC: NDArray[np.int64]) -> NDArray[np.bool_]:
    """(N, C) which neighbours (−1 = none) are relevant to their rows."""
    row_P, place_P = np.nonzero(neighbour_NC >= 0)
    relevant_NC = np.zeros(neighbour_NC.shape, dtype=bool)
    relevant_NC[row_P, place_P] = relevance.relevant(row_P, neighbour_NC[row_P, place_P])
    return relevant_NC
