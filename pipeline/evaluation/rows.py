"""The rows of a store that are evaluated: all, or a part that is chosen by the keys alone."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from pipeline.errors import UserError
from pipeline.representation_store import RepresentationStore


@dataclass(frozen=True, kw_only=True)
class Rows:
    """Rows of one view of a store, in the store's order.

    Attributes:
        representation_ND: float32.
        label_N: int32, −1 = unlabelled; indexes ``class_names``.
        unit_N: int32, the input tar of the row.
        keys: N sample keys.
        class_names: of the labels.
        stored: rows in the store, of which these are all or a part.
        quarantined: samples that the store left out.
    """

    representation_ND: NDArray[np.float32]
    label_N: NDArray[np.int32]
    unit_N: NDArray[np.int32]
    keys: list[str]
    class_names: tuple[str, ...]
    stored: int
    quarantined: int


def read_rows(store: RepresentationStore, *, view: str = "center", most: int | None = None) -> Rows:
    """Read one view of a store.

    Args:
        store: with all its units committed.
        view: name of the view.
        most: at most so many rows: those whose keys have the smallest hashes, so that the choice depends on the keys
            alone and a larger choice contains a smaller one; None = all.

    Raises:
        UserError: the store has no such view, or no rows.
    """
    if view not in store.layout.views:
        raise UserError(
            f"{store.path} has no view '{view}', only {', '.join(store.layout.views)}. "
            f"Evaluation needs it: cache again with cache.views=[{view}]."
        )
    units = list(store.counts())
    keys = {unit: [key.decode() for key in store.read("key", unit)] for unit in units}
    stored = sum(len(part) for part in keys.values())
    if stored == 0:
        raise UserError(f"{store.path} has no rows. Look at its commits for what was quarantined, and why.")
    chosen = _chosen(keys, stored if most is None else most)
    index = store.layout.views.index(view)
    embeddings = [store.representation(unit, view=index)[chosen[unit]] for unit in units]
    labels = [store.read("label", unit)[chosen[unit]] for unit in units]
    return Rows(
        representation_ND=np.concatenate(embeddings, dtype=np.float32),
        label_N=np.concatenate(labels),
        unit_N=np.concatenate([np.full(len(chosen[unit]), unit, dtype=np.int32) for unit in units]),
        keys=[keys[unit][row] for unit in units for row in chosen[unit]],
        class_names=store.class_names,
        stored=stored,
        quarantined=sum(len(store.commit(unit).quarantined) for unit in units),
    )


def _chosen(keys: dict[int, list[str]], most: int) -> dict[int, NDArray[np.int64]]:
    """Rows of each unit that belong to the ``most`` smallest hashes of all keys, ascending."""
    mark_N = np.array([_mark(key) for part in keys.values() for key in part], dtype=np.uint64)
    keep_N = np.zeros(len(mark_N), dtype=bool)
    keep_N[np.argsort(mark_N, kind="stable")[:most]] = True
    ends = np.cumsum([len(part) for part in keys.values()])[:-1]
    return {unit: np.flatnonzero(part) for unit, part in zip(keys, np.split(keep_N, ends), strict=True)}


def _mark(key: str) -> int:
    return int.from_bytes(blake2b(key.encode(), digest_size=8).digest(), "big")
