"""What is drawn for the order of rows: raw Philox output, whose stream numpy promises never to change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, kw_only=True)
class Draws:
    """One stream of random words, a pure function of the attributes; each method begins at its beginning.

    Attributes:
        seed: of everything.
        purpose: what the stream is for.
        at: where it is used, as (epoch, window).
    """

    seed: int
    purpose: int
    at: tuple[int, int] = (0, 0)

    def words(self, count: int) -> NDArray[np.uint64]:
        """The first ``count`` words, of 64 random bits each."""
        generator = np.random.Philox(key=np.array([self.seed, self.purpose], dtype=np.uint64), counter=[0, 0, *self.at])
        words: NDArray[np.uint64] = generator.random_raw(count)
        return words

    def permutations(self, count: int, length: int) -> NDArray[np.int64]:
        """``count`` random permutations of ``range(length)``, (count, length).

        The low bits of random words are replaced by the index, and the words sorted: no ties, so nothing is left to
        the sorting algorithm.
        """
        bits = np.uint64(length.bit_length())
        words: NDArray[Any] = self.words(count * length).reshape(count, length)
        words = (words >> bits << bits) | np.arange(length, dtype=np.uint64)
        words.sort(axis=1)
        return (words & ((np.uint64(1) << bits) - np.uint64(1))).astype(np.int64)
