"""Pairs of rows among which the nearest ones surely are, from faiss's exact search in float32.

Like :mod:`pipeline.metrics.candidates`, this only nominates: float64 decides, by the same rule, so the neighbours are
the same bit for bit. A few more rows than are wanted are asked for; where the rounding leaves open whether a row that
was not given could be as near, twice as many are asked for, and so on up to all.

A row's C-th nearest is at most as far as the C-th smallest of what was computed plus its error. What was not given is,
as computed, no nearer than the last that was, d, so its true distance is at least d less the error. A squared distance
that is computed in float32 as ``|a|² + |b|² − 2 a·b`` of D terms, summed in any order, is off by less than
``2 (e(a) + e(b)) (1 + 2 D 2⁻²⁴)``, ``e`` as in that module: three sums of D products, a few roundings, and what
centring loses. The sum of squared differences that faiss takes for few queries is off by less.

A row b that was not given and is farther from the centre than |a| + √d is farther from a than √d whatever was
computed: so the error of one at |a| + √d bounds that of all others.

Shape suffixes: M rows, D width, C neighbours wanted, B rows of a block, W rows that faiss gives for each, P pairs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.errors import UserError
from pipeline.interruption import stop_if_asked
from pipeline.metrics.candidates import centre_of, rounding_error
from pipeline.metrics.distances import in_blocks

MORE = 8  # rows that are asked for beyond those wanted
BLOCK = 4096  # rows that ask at a time
HELD = 1 << 22  # answers that are held at a time


def import_faiss() -> Any:
    """The module.

    Raises:
        UserError: it is not installed.
    """
    try:
        import faiss
    except ImportError:
        raise UserError(
            "faiss is not installed: pip install 'hedgerow[faiss]'. Or leave it out: evaluate.search=ours has the same "
            "result."
        ) from None
    return faiss


def faiss_candidates(
    row_MD: NDArray[np.float32], wanted_M: NDArray[np.bool_], *, count: int
) -> Iterator[NDArray[np.int64]]:
    """Pairs (row, other row), (P, 2), among which are the ``count`` nearest others of each row.

    Args:
        row_MD: finite.
        wanted_M: rows whose neighbours are wanted.
        count: how many, at least 1.

    Yields:
        All pairs of some rows at a time; each wanted row once, unless there is no other row.
    """
    search = _Search(row_MD, count)
    left_B = np.flatnonzero(wanted_M)
    width = count + 1 + MORE
    while len(left_B):
        width = min(width, len(row_MD))
        open_rows = []
        for block in in_blocks(len(left_B), max(1, min(BLOCK, HELD // width))):
            stop_if_asked()
            pair_P2, sure_B = search.nearest(left_B[block], width)
            open_rows.append(left_B[block][~sure_B])
            if len(pair_P2):
                yield pair_P2
        left_B = np.concatenate(open_rows)
        width *= 2


class _Search:
    """faiss's index of the rows, centred and scaled as :func:`pipeline.metrics.candidates.centre_of` says."""

    def __init__(self, row_MD: NDArray[np.float32], count: int) -> None:
        self.row_MD, self.count = row_MD, count
        self.mean_D, self.scale, self.square_M = centre_of(row_MD)
        self.index = import_faiss().IndexFlatL2(row_MD.shape[1])
        for block in in_blocks(len(row_MD), BLOCK):
            self.index.add(self._centred(block))

    def _centred(self, rows: Any) -> NDArray[np.float32]:
        return np.ascontiguousarray((self.row_MD[rows] - self.mean_D) * self.scale, dtype=np.float32)

    def _error(self, square: NDArray[np.float64]) -> NDArray[np.float64]:
        """Of a squared distance, for the part of one of its two rows."""
        width = self.row_MD.shape[1]
        return 2 * (1 + width * 2.0**-23) * rounding_error(width, square)

    def nearest(self, row_B: NDArray[np.int64], width: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Of some rows the pairs that may be among the nearest, and of which rows these are surely all.

        Of the others no pairs are given.
        """
        found_BW, other_BW = self.index.search(self._centred(row_B), width)
        distance_BW = np.maximum(found_BW.astype(np.float64), 0)
        own_B = self._error(self.square_M[row_B])
        error_BW = own_B[:, None] + self._error(self.square_M[other_BW])
        others_BW = other_BW != row_B[:, None]
        high_BW = np.where(others_BW, distance_BW + error_BW, np.inf)
        wanted = min(self.count, len(self.row_MD) - 1)
        reach_B = np.partition(high_BW, wanted - 1, axis=1)[:, wanted - 1]
        last_B = distance_BW.max(axis=1)
        farthest_B = (np.sqrt(self.square_M[row_B]) + np.sqrt(last_B)) ** 2 * (1 + 1e-6)
        sure_B = last_B - own_B - self._error(farthest_B) > reach_B
        if width == len(self.row_MD):
            sure_B[:] = True
        near_BW = others_BW & (distance_BW - error_BW <= reach_B[:, None]) & sure_B[:, None]
        place_P, within_P = np.nonzero(near_BW)
        return np.stack([row_B[place_P], other_BW[place_P, within_P].astype(np.int64)], axis=1), sure_B
