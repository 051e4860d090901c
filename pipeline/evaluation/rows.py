"""The rows of a store that are evaluated: all, or a part that is chosen by the keys alone."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.errors import UserError
from pipeline.relevance import Relevance
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
        relevance: which rows are relevant to which, where equality of the label does not say it.
    """

    representation_ND: NDArray[np.float32]
    label_N: NDArray[np.int32]
    unit_N: NDArray[np.int32]
    keys: list[str]
    class_names: tuple[str, ...]
    stored: int
    quarantined: int
    relevance: Relevance | None = None

    def class_name(self, row: int) -> str | None:
        """Of one row; None where it has no label."""
        label = int(self.label_N[row])
        return self.class_names[label] if label >= 0 else None


class ChosenRows:
    """Which rows of a store are evaluated, and what the store holds of them.

    Args:
        store: with all its units committed.
        most: at most so many rows: those whose keys have the smallest hashes, so that the choice depends on the keys
            alone and a larger choice contains a smaller one; None = all.
        without: keys whose rows are left out before.
        among_N: bool, of the rows of the committed units, in order: those that may be chosen; None = all.

    Raises:
        UserError: the store has no rows, or none but those that are left out.
    """

    def __init__(
        self,
        store: RepresentationStore,
        most: int | None = None,
        without: frozenset[bytes] = frozenset(),
        among_N: NDArray[np.bool_] | None = None,
    ) -> None:
        self.store = store
        keys = {unit: [key.decode() for key in store.read("key", unit)] for unit in store.counts()}
        self.stored = sum(len(part) for part in keys.values())
        if self.stored == 0:
            raise UserError(f"{store.path} has no rows. Look at its commits for what was quarantined, and why.")
        self.row_U = _chosen(keys, self.stored if most is None else most, without, among_N)
        if not any(len(row_R) for row_R in self.row_U.values()):
            raise UserError(
                f"{store.path}: all {self.stored} rows are trained on or left out of the test. Take fewer shots: lower "
                "train_head.shots, and evaluate.without_shots where it is set."
            )
        self.keys = [keys[unit][row] for unit, rows in self.row_U.items() for row in rows]

    def column(self, array: str, view: str | None = None) -> NDArray[Any]:
        """(N, …) of an array of the store, as it is stored; of one view where the array has views.

        Raises:
            UserError: the store has no such view.
        """
        index = None if view is None else self._index(view)
        return np.concatenate([self.store.read(array, unit, view=index)[row] for unit, row in self.row_U.items()])

    def representation(self, view: str) -> NDArray[np.float32]:
        """(N, D) of one view.

        Raises:
            UserError: the store has no such view.
        """
        index = self._index(view)
        parts = [self.store.representation(unit, view=index)[row] for unit, row in self.row_U.items()]
        return np.concatenate(parts, dtype=np.float32)

    def _index(self, view: str) -> int:
        if view not in self.store.layout.views:
            raise UserError(
                f"{self.store.path} has no view '{view}', only {', '.join(self.store.layout.views)}. "
                f"Evaluation needs it: cache again with cache.views=[{view}]."
            )
        return self.store.layout.views.index(view)

    def rows(self, view: str) -> Rows:
        """All that scoring needs, of one view.

        Raises:
            UserError: the store has no such view.
        """
        return Rows(
            representation_ND=self.representation(view),
            label_N=self.column("label"),
            unit_N=np.concatenate([np.full(len(row), unit, dtype=np.int32) for unit, row in self.row_U.items()]),
            keys=self.keys,
            class_names=self.store.class_names,
            stored=self.stored,
            quarantined=sum(len(self.store.commit(unit).quarantined) for unit in self.row_U),
        )


def read_rows(store: RepresentationStore, *, view: str = "center", most: int | None = None) -> Rows:
    """Read one view of a store; arguments and errors are those of :class:`ChosenRows`."""
    return ChosenRows(store, most).rows(view)


def _chosen(
    keys: dict[int, list[str]], most: int, without: frozenset[bytes], among_N: NDArray[np.bool_] | None
) -> dict[int, NDArray[np.int64]]:
    """Rows of each unit that belong to the ``most`` smallest hashes of all keys that are not left out, ascending."""
    mark_N = np.array([_mark(key) for part in keys.values() for key in part], dtype=np.uint64)
    left_N = np.array([key.encode() not in without for part in keys.values() for key in part], dtype=bool)
    if among_N is not None:
        left_N &= among_N
    keep_N = np.zeros(len(mark_N), dtype=bool)
    order_N = np.argsort(mark_N, kind="stable")
    keep_N[order_N[left_N[order_N]][:most]] = True
    ends = np.cumsum([len(part) for part in keys.values()])[:-1]
    return {unit: np.flatnonzero(part) for unit, part in zip(keys, np.split(keep_N, ends), strict=True)}


def _mark(key: str) -> int:
    return int.from_bytes(blake2b(key.encode(), digest_size=8).digest(), "big")
