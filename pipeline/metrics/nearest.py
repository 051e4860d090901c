"""Exact nearest neighbours by chunked matrix products, in bounded memory, on CPU or GPU, with the same result on both.

A float32 matrix product only nominates candidates: it bounds each pair's closeness from above, its own rounding
included. The candidates' distances are then taken in float64, as sums of squared differences in a fixed order. So the
neighbour of a row is a function of the rows alone: not of the chunk size, the BLAS, the threads or the device. Equal
distances go to the lowest index; rows equal bit for bit are at distance 0 of each other.

Shape suffixes: N rows, D width, M distinct rows, Q queries, K = D + 2, P pairs.
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
    """The nearest other row of each row.

    Args:
        embedding_ND: (N, D), finite; read as float32.
        metric: ``cosine`` (rows are scaled to length one, as in URL and Pretrained Visual Uncertainties) or ``l2``.
        device: where the matrix products run.
        chunk_bytes: size of one block of products, which bounds the memory needed beside three copies of the embedding.

    Returns:
        (N,) int64: index of the nearest other row (self is left out by index, so a duplicate is a neighbour like any
        other), the lowest one of several equally near; −1 where there is no other row.

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
    neighbour_N = np.full(len(row_ND), -1, dtype=np.int64)
    first_M = _settle_duplicates(row_ND, neighbour_N)
    query_Q = np.flatnonzero(neighbour_N[first_M] < 0)
    if len(first_M) > 1 and len(query_Q) > 0:
        distinct_MD = row_ND if len(first_M) == len(row_ND) else row_ND[first_M]
        nearest_Q = _search(distinct_MD, query_Q, torch.device(device), chunk_bytes)
        neighbour_N[first_M[query_Q]] = first_M[nearest_Q]
    return neighbour_N


def _scale_to_unit_length(row_ND: NDArray[np.float32]) -> None:
    """Scale rows to length one in place: computed in float64, rounded to float32."""
    for start in range(0, len(row_ND), BLOCK_ROWS):
        block_BD = row_ND[start : start + BLOCK_ROWS].astype(np.float64)
        norm_B = np.sqrt(np.square(block_BD).sum(axis=1))
        if (norm_B == 0).any():
            index = start + int((norm_B == 0).argmax())
            raise UserError(f"embedding: the row at index {index} is zero; it has no direction, so no cosine. Use l2.")
        row_ND[start : start + BLOCK_ROWS] = block_BD / norm_B[:, None]


def _settle_duplicates(row_ND: NDArray[np.float32], neighbour_N: NDArray[np.int64]) -> NDArray[np.int64]:
    """Give rows that have an equal one the lowest other index of their group; return the first index of each group.

    Without this a collection of few distinct rows would make every pair a candidate.
    """
    groups: dict[bytes, list[int]] = {}
    for index, row_D in enumerate(row_ND):
        groups.setdefault(blake2b(row_D, digest_size=16).digest(), []).append(index)
    for first, *others in groups.values():
        if others:
            neighbour_N[first] = others[0]
            neighbour_N[others] = first
    return np.array([group[0] for group in groups.values()], dtype=np.int64)


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
    row_MD: NDArray[np.float32], query_Q: NDArray[np.int64], device: torch.device, chunk_bytes: int
) -> NDArray[np.int64]:
    """The nearest other row of the rows ``query_Q``, among rows that are all distinct."""
    nominator = _Nominator.of(row_MD)
    database_KM = torch.from_numpy(nominator.database_MK).to(device).T
    step = max(1, chunk_bytes // (4 * len(row_MD)))
    nearest_Q = np.empty(len(query_Q), dtype=np.int64)
    with _full_float32_products():
        for start in range(0, len(query_Q), step):
            rows_Q = query_Q[start : start + step]
            place_Q = torch.arange(len(rows_Q), device=device)
            bound_QM = torch.from_numpy(nominator.query(rows_Q)).to(device) @ database_KM
            bound_QM[place_Q, torch.from_numpy(rows_Q).to(device)] = -torch.inf
            likely_Q = bound_QM.argmax(dim=1)
            distance_Q = _distances(row_MD, rows_Q, likely_Q.cpu().numpy())
            threshold_Q = torch.from_numpy(nominator.threshold(rows_Q, distance_Q)).to(device)
            pair_P2 = (bound_QM >= threshold_Q[:, None]).nonzero().cpu().numpy()
            nearest_Q[start : start + step] = _nearest_of_pairs(row_MD, rows_Q, pair_P2)
    return nearest_Q


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
    row_MD: NDArray[np.float32], rows_Q: NDArray[np.int64], pair_P2: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Of candidate pairs (place in ``rows_Q``, row), the nearest row of each query, the lowest of equally near ones."""
    place_P, row_P = pair_P2[:, 0], pair_P2[:, 1]
    distance_P = _distances(row_MD, rows_Q[place_P], row_P)
    order_P = np.lexsort((row_P, distance_P, place_P))
    place_Q, first_Q = np.unique(place_P[order_P], return_index=True)
    assert len(place_Q) == len(rows_Q), "every query is its likely neighbour's candidate"
    return row_P[order_P][first_Q]
