"""Which rows are held out, by a hash of their keys alone: the same images, however they are packed."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def hashes(keys: NDArray[np.bytes_], salt: int = 0) -> NDArray[np.uint64]:
    """(N,) a number for each key, spread evenly over 64 bits; each ``salt`` gives other ones.

    It is a polynomial of the bytes modulo 2⁶⁴, then SplitMix64's finaliser. It knows nothing of a row's place, nor of
    how wide the array of keys is.
    """
    bytes_NK = np.ascontiguousarray(keys).view(np.uint8).reshape(len(keys), keys.dtype.itemsize).astype(np.uint64)
    powers = [pow(0x100000001B3, place + 1, 1 << 64) for place in range(bytes_NK.shape[1])]
    hash_N = (bytes_NK * np.array(powers, dtype=np.uint64)).sum(axis=1, dtype=np.uint64)
    hash_N += np.uint64(salt * 0x9E3779B97F4A7C15 % (1 << 64))
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1)):
        hash_N = (hash_N ^ (hash_N >> np.uint64(shift))) * np.uint64(factor)
    return hash_N


def held_out(keys: NDArray[np.bytes_], share: float) -> NDArray[np.bool_]:
    """(N,) which rows are held out: those whose key's hash falls into the first ``share`` of all :func:`hashes`."""
    return (hashes(keys) >> np.uint64(11)).astype(np.float64) < share * (1 << 53)
