"""Which rows of a store: those of some classes, units or keys, as one bool a row. Columns are read unit by unit.

N rows of the committed units, in order.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pipeline.held_out import hashes

if TYPE_CHECKING:
    from pipeline.representation_store.store import RepresentationStore

Mask = NDArray[np.bool_]


def of_classes(store: RepresentationStore, labels: Collection[int]) -> Mask:
    """(N,) rows whose label is one of these."""
    wanted = np.array(sorted(labels), dtype=np.int32)
    mask_N = np.zeros(sum(store.counts().values()), dtype=bool)
    for start, label_R in store.column("label"):
        mask_N[start : start + len(label_R)] = np.isin(label_R, wanted)
    return mask_N


def of_units(store: RepresentationStore, units: Collection[int]) -> Mask:
    """(N,) rows of these units."""
    counts = store.counts()
    return np.repeat(np.isin(list(counts), list(units)), list(counts.values()))


def of_keys(store: RepresentationStore, keys: NDArray[np.bytes_]) -> tuple[Mask, NDArray[np.bytes_]]:
    """(N,) rows with one of these keys (a key in two units is two rows), and the keys that no row has."""
    keys = np.unique(keys)
    fits = np.strings.str_len(keys) <= store.layout.key_bytes
    wanted_K = keys[fits].astype(store.specs["key"].dtype)  # of one width with the store's, so nothing is converted
    found_K = np.zeros(len(wanted_K), dtype=bool)
    mask_N = np.zeros(sum(store.counts().values()), dtype=bool)
    for start, key_R in store.column("key"):
        place_R = np.minimum(np.searchsorted(wanted_K, key_R), len(wanted_K) - 1)
        if len(wanted_K):
            there_R = wanted_K[place_R] == key_R
            mask_N[start : start + len(key_R)] = there_R
            found_K[place_R[there_R]] = True
    return mask_N, np.concatenate([keys[~fits], wanted_K[~found_K]])


def of_shots(store: RepresentationStore, shots: int, seed: int, among_N: Mask | None = None) -> Mask:
    """(N,) so many rows of each class, all of a smaller one: those whose keys have the smallest hashes.

    More shots contain fewer ones; another seed gives other rows.

    Args:
        store: whose rows.
        shots: of each class.
        seed: at least 0.
        among_N: rows that may be chosen; None: all with a label.
    """
    count = sum(store.counts().values())
    label_N, hash_N = np.empty(count, dtype=np.int32), np.empty(count, dtype=np.uint64)
    for start, label_R in store.column("label"):
        label_N[start : start + len(label_R)] = label_R
    for start, key_R in store.column("key"):  # with a salt, so that no other choice by hash goes along with this one
        hash_N[start : start + len(key_R)] = hashes(key_R, salt=seed + 1)
    row_L = np.flatnonzero(label_N >= 0 if among_N is None else (label_N >= 0) & among_N)
    order_L = row_L[np.lexsort((hash_N[row_L], label_N[row_L]))]
    rank_L = np.arange(len(order_L)) - np.searchsorted(label_N[order_L], label_N[order_L])
    mask_N = np.zeros(count, dtype=bool)
    mask_N[order_L[rank_L < shots]] = True
    return mask_N
