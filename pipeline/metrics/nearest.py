"""Exact nearest neighbours by chunked matrix products, in bounded memory, on CPU or GPU, with the same result on both.

A float32 matrix product only nominates candidates: it bounds each pair's closeness from above, its own rounding
included. The candidates' distances are then taken in float64, as sums of squared differences in a fixed order. So the
neighbour of a row is a function of the rows alone: not of the chunk size, the BLAS, the threads or the device. Equal
distances go to the lowest index; rows equal bit for bit are at distance 0 of each other.

Shape suffixes: N rows, D width, M distinct rows, Q queries, K = D + 2, P pairs, C neighbours wanted, R rows of pairs.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from pipeline.errors import UserError
from pipeline.metrics.checks import refuse_non_finite

Metric = Literal["cosine", "l2"]
BLOCK_ROWS = 4096  # rows that are held in float64 at a time


def nearest_neighbour(
    embedding_ND: NDArray[np.floating],
    *,
    metric: Metric = "cosine",
    device: torch.device | str = "cpu",
    chunk_bytes: int = 64 * 2**20,
) -> NDArray[np.int64]:
    """The nearest other row of each row, (N,): :func:`nearest_neighbours` with a count of one."""
    return nearest_neighbours(embedding_ND, count=1, metric=metric, device=device, chunk_bytes=chunk_bytes)[:, 0]


def nearest_neighbours(
    embedding_ND: NDArray[np.floating],
    *,
    count: int,
    metric: Metric = "cosine",
    device: torch.device | str = "cpu",
    chunk_bytes: int = 64 * 2**20,
) -> NDArray[np.int64]:
    """The nearest other rows of each row, the nearest first.

    Args:
        embedding_ND: (N, D), finite; read as float32.
        count: how many neighbours C, at least 1.
        metric: ``cosine`` (rows are scaled to length one, as in URL and Pretrained Visual Uncertainties) or ``l2``.
        device: where the matrix products run.
        chunk_bytes: size of one block of products, which bounds the memory needed beside three copies of the embedding.

    Returns:
        (N, C) int64: indices of the nearest other rows (self is left out by index, so a duplicate is a neighbour like
        any other), lower ones first where several are equally near; −1 where there are no more rows.

    Raises:
        UserError: NaN, infinity, a row of length zero with ``cosine``, or not two dimensions.
    """
    if embedding_ND.ndim != 2:
        raise UserError(f"embedding: needs two dimensions (rows, width), it has shape {embedding_ND.shape}.")
    row_ND = np.ascontiguousarray(embedding_ND, dtype=np.float32)
    refuse_non_finite(row_ND, "embedding")
    row_ND = row_ND + np.float32(0)  # −0 becomes 0: equal rows have equal bytes
    if metric == "cosine":
        _scale_to_unit_length(row_ND)
    neighbour_NC = np.full((len(row_ND), count), -1, dtype=np.int64)
    groups = _Groups.of(row_ND)
    equal_M = np.minimum(groups.size_M - 1, count)  # neighbours at distance 0
    query_Q = np.flatnonzero(equal_M < count)
    if len(groups.size_M) > 1 and len(query_Q) > 0:
        distinct_MD = row_ND if len(groups.size_M) == len(row_ND) else row_ND[groups.member_N[groups.start_M]]
        found_QC = _search(distinct_MD, query_Q, groups, count, torch.device(device), chunk_bytes)
        for width in np.unique(equal_M[query_Q]):  # all members of a group have the same rows behind their equals
            same_Q = equal_M[query_Q] == width
            row_L, size_M = groups.members(query_Q[same_Q]), groups.size_M[query_Q[same_Q]]
            neighbour_NC[row_L, width:] = np.repeat(found_QC[same_Q, : count - width], size_M, axis=0)
    groups.settle(neighbour_NC)
    return neighbour_NC


def _scale_to_unit_length(row_ND: NDArray[np.float32]) -> None:
    """Scale rows to length one in place: computed in float64, rounded to float32."""
    for start in range(0, len(row_ND), BLOCK_ROWS):
        block_BD = row_ND[start : start + BLOCK_ROWS].astype(np.float64)
        norm_B = np.sqrt(np.square(block_BD).sum(axis=1))
        if (norm_B == 0).any():
            index = start + int((norm_B == 0).argmax())
            raise UserError(f"embedding: the row at index {index} is zero; it has no direction, so no cosine. Use l2.")
        row_ND[start : start + BLOCK_ROWS] = block_BD / norm_B[:, None]


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


@dataclass(frozen=True, kw_only=True)
class _Nominator:
    """What bounds ``closeness(a, b) = a·b − |b|²/2 = (|a|² − |a − b|²)/2`` from above by one float32 product.

    Rows are centred (distances stay, norms shrink, and with them the bounds) and scaled by a power of two so that the
    longest is at most 1. A product of K terms in float32, in any order, is off by at most K · 2⁻²⁴ · Σ|terms| to first
    order; centring, squares and the bound itself round as well. ``share``, twice (D + 16) roundings, covers it all.
    The two columns beside the centred rows add ``share · (|a||b| + |b|²/2)`` and subtract ``|b|²/2``.
    """

    database_MK: NDArray[np.float32]
    square_M: NDArray[np.float64]  # |a|² of the centred, scaled rows
    scale: float

    @classmethod
    def of(cls, row_MD: NDArray[np.float32]) -> _Nominator:
        width = row_MD.shape[1]
        share = 2 * (width + 16) * 2.0**-24
        mean_D = row_MD.mean(axis=0, dtype=np.float64)
        blocks = [slice(start, start + BLOCK_ROWS) for start in range(0, len(row_MD), BLOCK_ROWS)]
        square_M = np.concatenate([np.square(row_MD[block] - mean_D).sum(axis=1) for block in blocks])
        scale = float(np.exp2(-np.ceil(np.log2(np.sqrt(square_M.max())))))
        square_M *= scale**2
        database_MK = np.empty((len(row_MD), width + 2), dtype=np.float32)
        for block in blocks:
            database_MK[block, :width] = (row_MD[block] - mean_D) * scale
        database_MK[:, width] = share * np.sqrt(square_M)
        database_MK[:, width + 1] = (share - 1) * square_M / 2
        return cls(database_MK=database_MK, square_M=square_M, scale=scale)

    def query(self, rows_Q: NDArray[np.int64]) -> NDArray[np.float32]:
        query_QK = self.database_MK[rows_Q]
        query_QK[:, -2] = np.sqrt(self.square_M[rows_Q])
        query_QK[:, -1] = 1
        return query_QK

    def threshold(self, rows_Q: NDArray[np.int64], distance_Q: NDArray[np.float64]) -> NDArray[np.float32]:
        """What a pair's bound must reach if the pair is at most ``distance_Q`` (squared) apart.

        Lowered by the rounding of float64 distances, and by what float32 loses when products underflow.
        """
        square_Q = self.square_M[rows_Q]
        slack_Q = self.database_MK.shape[1] * (2.0**-50 * square_Q + 2.0**-120)
        closeness_Q = (square_Q - distance_Q * self.scale**2) / 2 - slack_Q
        return np.nextafter(closeness_Q.astype(np.float32), np.float32(-np.inf))


def _search(
    row_MD: NDArray[np.float32],
    query_Q: NDArray[np.int64],
    groups: _Groups,
    count: int,
    device: torch.device,
    chunk_bytes: int,
) -> NDArray[np.int64]:
    """(Q, C): the nearest rows outside their own group of the distinct rows ``query_Q``, −1 where there are no more."""
    nominator = _Nominator.of(row_MD)
    database_KM = torch.from_numpy(nominator.database_MK).to(device).T
    step = max(1, chunk_bytes // (4 * len(row_MD)))
    likely = min(count, len(row_MD) - 1)
    nearest_QC = np.full((len(query_Q), count), -1, dtype=np.int64)
    with _full_float32_products():
        for start in range(0, len(query_Q), step):
            rows_Q = query_Q[start : start + step]
            place_Q = torch.arange(len(rows_Q), device=device)
            bound_QM = torch.from_numpy(nominator.query(rows_Q)).to(device) @ database_KM
            bound_QM[place_Q, torch.from_numpy(rows_Q).to(device)] = -torch.inf
            likely_QL = (
                bound_QM.topk(likely, dim=1, sorted=False).indices if likely > 1 else bound_QM.argmax(1)[:, None]
            )
            distance_QL = _distances(row_MD, np.repeat(rows_Q, likely), likely_QL.cpu().numpy().reshape(-1))
            farthest_Q = distance_QL.reshape(-1, likely).max(axis=1)  # none of the nearest is farther
            threshold_Q = torch.from_numpy(nominator.threshold(rows_Q, farthest_Q)).to(device)
            pair_P2 = (bound_QM >= threshold_Q[:, None]).nonzero().cpu().numpy()
            nearest_QC[start : start + step] = _nearest_of_pairs(row_MD, rows_Q, pair_P2, groups, count)
    return nearest_QC


@contextmanager
def _full_float32_products() -> Iterator[None]:
    """The bounds hold for IEEE float32 products, not for TF32 or bfloat16 ones."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def _distances(
    row_MD: NDArray[np.float32], left_P: NDArray[np.int64], right_P: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Squared distances of pairs; the value of a pair does not depend on the pairs around it."""
    distance_P = np.empty(len(left_P), dtype=np.float64)
    for start in range(0, len(left_P), BLOCK_ROWS):
        block = slice(start, start + BLOCK_ROWS)
        difference_BD = row_MD[left_P[block]].astype(np.float64) - row_MD[right_P[block]]
        distance_P[block] = np.square(difference_BD).sum(axis=1)
    return distance_P


def _nearest_of_pairs(
    row_MD: NDArray[np.float32],
    rows_Q: NDArray[np.int64],
    pair_P2: NDArray[np.int64],
    groups: _Groups,
    count: int,
) -> NDArray[np.int64]:
    """Of candidate pairs (place in ``rows_Q``, distinct row), the nearest rows of each query, lower ones first."""
    place_P, group_P = pair_P2[:, 0], pair_P2[:, 1]
    distance_P = _distances(row_MD, rows_Q[place_P], group_P)
    order_P = np.lexsort((distance_P, place_P))
    place_P, group_P, distance_P = place_P[order_P], group_P[order_P], distance_P[order_P]
    first_Q = np.searchsorted(place_P, np.arange(len(rows_Q)))
    last_Q = np.minimum(first_Q + count, np.append(first_Q[1:], len(place_P))) - 1
    near_P = distance_P <= distance_P[last_Q][place_P]  # and those as near as the last one
    place_P, group_P, distance_P = place_P[near_P], group_P[near_P], distance_P[near_P]
    rows_P = np.minimum(groups.size_M[group_P], count)
    place_R, distance_R = np.repeat(place_P, rows_P), np.repeat(distance_P, rows_P)
    row_R = groups.members(group_P, at_most=count)
    order_R = np.lexsort((row_R, distance_R, place_R))
    place_R, row_R = place_R[order_R], row_R[order_R]
    rank_R = np.arange(len(place_R)) - np.searchsorted(place_R, np.arange(len(rows_Q)))[place_R]
    nearest_QC = np.full((len(rows_Q), count), -1, dtype=np.int64)
    within_R = rank_R < count
    nearest_QC[place_R[within_R], rank_R[within_R]] = row_R[within_R]
    return nearest_QC
