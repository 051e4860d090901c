"""Which rows of a store: those of some classes, units or keys, as one bool a row. Columns are read unit by unit.

N rows of the committed units, in order.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

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
