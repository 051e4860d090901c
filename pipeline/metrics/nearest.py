"""Exact nearest neighbours by products of tiles of rows, in bounded memory; on CPU and GPU with the same result.

Float32 products only nominate candidates (:mod:`pipeline.metrics.candidates`): they bound each pair's closeness, their
own rounding included. The candidates' distances are then taken in float64, as sums of squared differences in a fixed
order. So the neighbour of a row is a function of the rows alone: not of the size of a tile, the BLAS, the threads, the
device, or who nominates (:func:`searching`). Equal distances go to the lowest index; rows equal bit for bit are at
distance 0 of each other.

Shape suffixes: N rows, D width, M distinct rows, P pairs, C neighbours wanted, R rows of pairs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from hashlib import blake2b
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from pipeline.errors import UserError
from pipeline.metrics.candidates import candidates
from pipeline.metrics.checks import refuse_non_finite
from pipeline.metrics.distances import closest_pairs, in_blocks
from pipeline.metrics.faiss_candidates import faiss_candidates

Metric = Literal["cosine", "l2"]
Search = Literal["ours", "faiss"]
_SEARCH: ContextVar[Search] = ContextVar("search", default="ours")


@contextmanager
def searching(search: Search) -> Iterator[None]:
    """Within it candidates are found by our own products of tiles, or by faiss on the CPU; neighbours are the same.

    Raises:
        UserError: faiss is asked for and not installed, where neighbours are sought.
    """
    before = _SEARCH.set(search)
    try:
        yield
    finally:
        _SEARCH.reset(before)


def nearest_neighbour(
    embedding_ND: NDArray[np.floating],
    *,
    metric: Metric = "cosine",
    device: torch.device | str = "cpu",
    chunk_bytes: int = 16 * 2**20,
) -> NDArray[np.int64]:
    """The nearest other row of each row, (N,): :func:`nearest_neighbours` with a count of one."""
    return nearest_neighbours(embedding_ND, count=1, metric=metric, device=device, chunk_bytes=chunk_bytes)[:, 0]


def nearest_neighbours(
    embedding_ND: NDArray[np.floating],
    *,
    count: int,
    metric: Metric = "cosine",
    device: torch.device | str = "cpu",
    chunk_bytes: int = 16 * 2**20,
) -> NDArray[np.int64]:
    """The nearest other rows of each row, the nearest first.

    Args:
        embedding_ND: (N, D), finite; read as float32.
        count: how many neighbours C, at least 1.
        metric: ``cosine`` (rows are scaled to length one, as in URL and Pretrained Visual Uncertainties) or ``l2``. A
            row of zeros has no direction: its cosine with rows that have one is 0, as torch's, and it equals its like.
        device: where the matrix products run.
        chunk_bytes: size of one tile of products. Beside four copies of the embedding and the result, memory is
            needed for some ten of them and for some ten candidates a row and neighbour.

    Returns:
        (N, C) int64: indices of the nearest other rows (self is left out by index, so a duplicate is a neighbour like
        any other), lower ones first where several are equally near; −1 where there are no more rows.

    Raises:
        UserError: NaN, infinity, or not two dimensions.
    """
    if embedding_ND.ndim != 2:
        raise UserError(f"embedding: needs two dimensions (rows, width), it has shape {embedding_ND.shape}.")
    row_ND = np.ascontiguousarray(embedding_ND, dtype=np.float32)
    refuse_non_finite(row_ND, "embedding")
    row_ND = row_ND + np.float32(0)  # −0 becomes 0: equal rows have equal bytes
    zero_N = np.asarray(~row_ND.any(axis=1))
    if metric == "cosine":
        row_ND = _of_unit_length(row_ND, zero_N)
    neighbour_NC = np.full((len(row_ND), count), -1, dtype=np.int64)
    groups = _Groups.of(row_ND)
    if len(groups.size_M) > 1:
        tile_rows = max(1, math.isqrt(chunk_bytes // 4))
        _search(row_ND, groups, neighbour_NC, torch.device(device), tile_rows)
    groups.settle(neighbour_NC)
    if metric == "cosine":
        _settle_zeros(neighbour_NC, zero_N)
    return neighbour_NC


def _of_unit_length(row_ND: NDArray[np.float32], zero_N: NDArray[np.bool_]) -> NDArray[np.float32]:
    """Rows scaled to length one: computed in float64, rounded to float32.

    Rows of zeros, if there are some, get a direction of their own, one column more, at a right angle to all others.
    """
    if zero_N.any():
        row_ND = np.concatenate([row_ND, zero_N[:, None]], axis=1, dtype=np.float32)
    for block in in_blocks(len(row_ND)):
        block_BD = row_ND[block].astype(np.float64)
        row_ND[block] = block_BD / np.sqrt(np.square(block_BD).sum(axis=1))[:, None]
    return row_ND


def _settle_zeros(neighbour_NC: NDArray[np.int64], zero_N: NDArray[np.bool_]) -> None:
    """A row of zeros is as far from all that have a direction: behind its like come the lowest of these."""
    order_N = np.concatenate([np.flatnonzero(zero_N), np.flatnonzero(~zero_N)])[: neighbour_NC.shape[1] + 1]
    for row in np.flatnonzero(zero_N):
        others = order_N[order_N != row][: neighbour_NC.shape[1]]
        neighbour_NC[row, : len(others)] = others


@dataclass(frozen=True, kw_only=True)
class _Groups:
    """Rows that are equal bit for bit, as one distinct row: else a few distinct rows would make all pairs candidates.

    Attributes:
        member_N: rows, group by group in the order of their first rows, ascending within a group.
        start_M, size_M: of each group in ``member_N``.
    """

    member_N: NDArray[np.int64]
    start_M: NDArray[np.int64]
    size_M: NDArray[np.int64]

    @classmethod
    def of(cls, row_ND: NDArray[np.float32]) -> _Groups:
        groups: dict[bytes, list[int]] = {}
        for index, row_D in enumerate(row_ND):
            groups.setdefault(blake2b(row_D, digest_size=16).digest(), []).append(index)
        size_M = np.array([len(group) for group in groups.values()], dtype=np.int64)
        member_N = np.array([index for group in groups.values() for index in group], dtype=np.int64)
        return cls(member_N=member_N, start_M=np.cumsum(size_M) - size_M, size_M=size_M)

    def members(self, group_G: NDArray[np.int64], at_most: int | None = None) -> NDArray[np.int64]:
        """The rows of some groups, group by group; ``at_most`` so many of each, the lowest."""
        size_G = self.size_M[group_G] if at_most is None else np.minimum(self.size_M[group_G], at_most)
        within = np.arange(size_G.sum()) - np.repeat(np.cumsum(size_G) - size_G, size_G)
        return self.member_N[np.repeat(self.start_M[group_G], size_G) + within]

    def settle(self, neighbour_NC: NDArray[np.int64]) -> None:
        """Put the lowest other rows of its group first among each row's neighbours."""
        count = neighbour_NC.shape[1]
        for group in np.flatnonzero(self.size_M > 1):
            member_G = self.members(np.array([group]))
            lowest, width = member_G[: count + 1], min(len(member_G) - 1, count)
            neighbour_NC[member_G[count + 1 :], :width] = lowest[:width]
            for place, row in enumerate(lowest):
                neighbour_NC[row, :width] = np.delete(lowest, place)[:width]


def _search(
    row_ND: NDArray[np.float32], groups: _Groups, neighbour_NC: NDArray[np.int64], device: torch.device, tile_rows: int
) -> None:
    """Fill in the neighbours outside each row's own group of equal rows."""
    count = neighbour_NC.shape[1]
    equal_M = np.minimum(groups.size_M - 1, count)  # neighbours at distance 0
    distinct_MD = row_ND if len(groups.size_M) == len(row_ND) else row_ND[groups.member_N[groups.start_M]]
    wanted_M = equal_M < count
    if _SEARCH.get() == "faiss":
        nominated = faiss_candidates(distinct_MD, wanted_M, count=count)
    else:
        nominated = candidates(distinct_MD, wanted_M, count=count, device=device, tile_rows=tile_rows)
    for pair_P2 in nominated:
        query_Q, nearest_QC = _nearest_of_pairs(distinct_MD, pair_P2, groups, count)
        for width in np.unique(equal_M[query_Q]):  # all members of a group have the same rows behind their equals
            same_Q = equal_M[query_Q] == width
            row_L, size_M = groups.members(query_Q[same_Q]), groups.size_M[query_Q[same_Q]]
            neighbour_NC[row_L, width:] = np.repeat(nearest_QC[same_Q, : count - width], size_M, axis=0)


def _nearest_of_pairs(
    row_MD: NDArray[np.float32], pair_P2: NDArray[np.int64], groups: _Groups, count: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Of pairs of distinct rows, the first ones (Q,), and the nearest rows of each (Q, C), lower ones first."""
    keep_P, distance_P = closest_pairs(row_MD, pair_P2, count)
    query_Q, place_P = np.unique(pair_P2[keep_P, 0], return_inverse=True)
    rows_P = np.minimum(groups.size_M[pair_P2[keep_P, 1]], count)
    place_R, distance_R = np.repeat(place_P, rows_P), np.repeat(distance_P, rows_P)
    row_R = groups.members(pair_P2[keep_P, 1], at_most=count)
    order_R = np.lexsort((row_R, distance_R, place_R))
    place_R, row_R = place_R[order_R], row_R[order_R]
    rank_R = np.arange(len(place_R)) - np.searchsorted(place_R, place_R)
    nearest_QC = np.full((len(query_Q), count), -1, dtype=np.int64)
    within_R = rank_R < count
    nearest_QC[place_R[within_R], rank_R[within_R]] = row_R[within_R]
    return query_Q, nearest_QC
