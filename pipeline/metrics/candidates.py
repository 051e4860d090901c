"""Pairs of rows among which the nearest ones surely are, from float32 products of tiles of rows with tiles of rows.

Closeness of two rows, ``s(a, b) = a·b − |a|²/2 − |b|²/2 = −|a − b|²/2``, is the same from both sides, so each pair of
tiles is multiplied once and serves the rows of both: half the work of a search that asks row by row.

A product of D terms in float32, summed in any order, is off by at most D · 2⁻²⁴ · |a||b| to first order, and
|a||b| ≤ (|a|² + |b|²)/2. With ``e(a) = (D + 16) · 2⁻²⁴ · |a|²``, which is twice that share and covers the rounding of
centring, squares and sums as well, ``s`` is within ``e(a) + e(b)`` of what is computed. A row's C closest pairs so far
bound the C-th smallest distance; a pair whose closeness cannot reach that bound is left out, all others are candidates.

Rows are centred (distances stay, norms shrink, and with them the errors), scaled by a power of two so that the longest
is at most 1, and sorted by norm, so that the largest error in a tile is near to that of each of its rows.

Shape suffixes: M rows, D width, C neighbours wanted, Q rows of a tile that ask, O rows of a tile that are looked at,
F × G = O: O in G groups of F, S groups that hold a candidate, P pairs.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from pipeline.interruption import stop_if_asked
from pipeline.metrics.distances import closest_pairs, in_blocks

FAN = 32  # rows of a group: of each, the maximum is looked at first
HELD_PAIRS = 1 << 24  # candidates that may wait for the rest of their row's tiles
LOWEST = torch.finfo(torch.float32).min


def candidates(
    row_MD: NDArray[np.float32],
    wanted_M: NDArray[np.bool_],
    *,
    count: int,
    device: torch.device,
    tile_rows: int,
    held_pairs: int = HELD_PAIRS,
) -> Iterator[NDArray[np.int64]]:
    """Pairs (row, other row), (P, 2), among which are the ``count`` nearest others of each row.

    Args:
        row_MD: finite.
        wanted_M: rows whose neighbours are wanted.
        count: how many, at least 1.
        device: where the products run.
        tile_rows: rows of a tile.
        held_pairs: candidates that are kept before the farther ones of them are dropped by their exact distances.

    Yields:
        All pairs of some rows at a time; each wanted row once, unless there is no other row.
    """
    search = _Search(row_MD, wanted_M, count, device, tile_rows, held_pairs)
    with full_float32_products():
        for first in range(search.tiles):
            stop_if_asked()
            for second in range(first, search.tiles):
                search.compare(first, second)
            yield search.take(first)


def centre_of(row_MD: NDArray[np.float32]) -> tuple[NDArray[np.float64], float, NDArray[np.float64]]:
    """The rows' mean (D,), the power of two by which they are scaled, and the squared lengths (M,) of centred rows."""
    mean_D = row_MD.mean(axis=0, dtype=np.float64)
    square_M = np.concatenate([np.square(row_MD[block] - mean_D).sum(axis=1) for block in in_blocks(len(row_MD))])
    scale = float(np.exp2(-np.ceil(np.log2(np.sqrt(square_M.max())))))
    return mean_D, scale, square_M * scale**2


def rounding_error(width: int, square: NDArray[np.float64]) -> NDArray[np.float64]:
    """``e`` of rows with these squared lengths."""
    return (width + 16) * (2.0**-24 * square + 2.0**-120)  # the second: what underflows


@contextmanager
def full_float32_products() -> Iterator[None]:
    """The bounds hold for IEEE float32 products, not for TF32 or bfloat16 ones."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


@dataclass(frozen=True, kw_only=True)
class _Held:
    """Candidates of the rows of one tile: places within the tile, rows in sorted order, lower bounds of closeness."""

    place_P: NDArray[np.int32]
    other_P: NDArray[np.int32]
    low_P: NDArray[np.float32]


class _Search:
    """The state of one search. Rows are in sorted order here, filled up with rows infinitely far from all others."""

    def __init__(
        self,
        row_MD: NDArray[np.float32],
        wanted_M: NDArray[np.bool_],
        count: int,
        device: torch.device,
        tile_rows: int,
        held_pairs: int,
    ) -> None:
        rows, width = row_MD.shape
        fan = min(FAN, max(1, tile_rows // (4 * count)), max(1, tile_rows // 8))
        self.tile = -(-min(tile_rows, rows) // fan) * fan
        self.fan, self.count, self.row_MD, self.held_pairs = fan, count, row_MD, max(held_pairs, 4 * rows * count)
        mean_D, scale, square_M = centre_of(row_MD)
        self.order_M = np.argsort(square_M, kind="stable")
        filled = -(-rows // fan) * fan
        sorted_MD = np.zeros((filled, width), dtype=np.float32)
        for block in in_blocks(rows):
            sorted_MD[block] = (row_MD[self.order_M[block]] - mean_D) * scale
        square_M = square_M[self.order_M]
        self.error_M = np.zeros(filled)
        self.error_M[:rows] = rounding_error(width, square_M)
        half_M = np.full(filled, np.inf)
        half_M[:rows] = square_M / 2 + self.error_M[:rows]
        low_MC = np.full((filled, count), np.inf, dtype=np.float32)
        low_MC[:rows][wanted_M[self.order_M]] = -np.inf
        self.device = device
        self.sorted_MD = torch.from_numpy(sorted_MD).to(device)
        self.half_M = torch.from_numpy(half_M.astype(np.float32)).to(device)
        self.low_MC = torch.from_numpy(low_MC).to(device)  # lower bounds of the C closest pairs so far, descending
        self.product = torch.empty(self.tile**2, device=device)
        self.tiles = -(-filled // self.tile)
        self.held: list[list[_Held]] = [[] for _ in range(self.tiles)]
        self.pairs = 0

    def _rows(self, tile: int) -> slice:
        return slice(tile * self.tile, min((tile + 1) * self.tile, len(self.half_M)))

    def compare(self, first: int, second: int) -> None:
        """Find the candidates of two tiles in each other."""
        one, other = self._rows(first), self._rows(second)
        shape = (one.stop - one.start, other.stop - other.start)
        low_QO = self.product[: shape[0] * shape[1]].view(shape)
        torch.mm(self.sorted_MD[one], self.sorted_MD[other].T, out=low_QO)
        low_QO -= self.half_M[other]
        low_QO -= self.half_M[one, None]
        if first == second:
            low_QO.fill_diagonal_(-torch.inf)
        else:
            self._look(second, first, low_QO.T)
        self._look(first, second, low_QO)
        if self.pairs > self.held_pairs:
            self._drop()

    def _look(self, tile: int, at: int, low_QO: torch.Tensor) -> None:
        """Hold the candidates of the rows of a tile among those of another."""
        of, among = self._rows(tile), self._rows(at)
        low_QFG = low_QO.unflatten(1, (self.fan, -1))
        best_QG = low_QFG.amax(1)
        low_QC = self.low_MC[of]
        low_QC.copy_(_largest(low_QC, best_QG))
        error_Q = 2 * (self.error_M[of] + self.error_M[among].max())
        reach_Q = (low_QC[:, -1] - torch.from_numpy(error_Q.astype(np.float32)).to(self.device)).clamp(min=LOWEST)
        place_S, group_S = (best_QG >= reach_Q[:, None]).nonzero(as_tuple=True)
        low_SF = low_QFG[place_S, :, group_S]
        found_P, within_P = (low_SF >= reach_Q[place_S, None]).nonzero(as_tuple=True)
        if len(found_P):
            held = _Held(
                place_P=place_S[found_P].int().cpu().numpy(),
                other_P=(among.start + within_P * best_QG.shape[1] + group_S[found_P]).int().cpu().numpy(),
                low_P=low_SF[found_P, within_P].cpu().numpy(),
            )
            self.held[tile].append(held)
            self.pairs += len(found_P)

    def _reaching(self, tile: int) -> _Held:
        """The candidates of a tile's rows that can still be among the closest."""
        parts, self.held[tile] = self.held[tile], []
        self.pairs -= sum(len(part.place_P) for part in parts)
        empty = np.empty(0, dtype=np.int32)
        place_P = np.concatenate([empty, *(part.place_P for part in parts)])
        other_P = np.concatenate([empty, *(part.other_P for part in parts)])
        low_P = np.concatenate([empty.astype(np.float32), *(part.low_P for part in parts)])
        of = self._rows(tile)
        least_Q = self.low_MC[of, -1].cpu().numpy().astype(np.float64)
        reach_Q = least_Q - 2 * self.error_M[of]
        keep_P = low_P + 2 * self.error_M[other_P] >= reach_Q[place_P]
        return _Held(place_P=place_P[keep_P], other_P=other_P[keep_P], low_P=low_P[keep_P])

    def _named(self, tile: int, held: _Held) -> NDArray[np.int64]:
        """The pairs (P, 2) by the rows' own indices."""
        place_P = held.place_P.astype(np.int64) + tile * self.tile
        return np.stack([self.order_M[place_P], self.order_M[held.other_P]], axis=1)

    def _drop(self) -> None:
        """Drop candidates: those that cannot be among the closest any more, and, if that is too few, by distance."""
        for tile in range(self.tiles):
            held = self._reaching(tile)
            if len(held.place_P) > self.held_pairs // (2 * self.tiles):
                keep_P, _ = closest_pairs(self.row_MD, self._named(tile, held), self.count)
                held = _Held(place_P=held.place_P[keep_P], other_P=held.other_P[keep_P], low_P=held.low_P[keep_P])
            self.held[tile].append(held)
            self.pairs += len(held.place_P)

    def take(self, tile: int) -> NDArray[np.int64]:
        """The pairs of a tile that has been compared with all others."""
        return self._named(tile, self._reaching(tile))


def _largest(low_QC: torch.Tensor, best_QG: torch.Tensor) -> torch.Tensor:
    """The C largest of both, descending."""
    count = low_QC.shape[1]
    if count == 1:
        return torch.maximum(low_QC, best_QG.amax(1, keepdim=True))
    return torch.cat([low_QC, best_QG], dim=1).topk(count, dim=1).values
