"""What is relevant to what, where equality of one label does not say it: several labels an image, places on a map.

A relation knows, for a collection of N rows, which rows are asked for, which may be found, whether a found row is
relevant to the one that asked, and how many relevant rows there are. It is made of arrays by key, saved beside packed
tars, and put into the order of whatever rows are evaluated by :meth:`Relevance.of`.

Shape suffixes: N rows, Q pairs of rows, L labels of all rows one behind the other.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
BLOCK_ROWS = 4096  # rows whose relevant rows are counted at a time


class Relevance(ABC):
    """A relation of N rows; two rows are relevant to each other or not, whoever of them asks."""

    kind: ClassVar[str]

    @abstractmethod
    def __len__(self) -> int:
        """N."""

    @property
    @abstractmethod
    def asked_N(self) -> NDArray[np.bool_]:  # noqa: N802 (a shape suffix)
        """(N,) rows that are asked for: they are queries, and what is relevant to them is known."""

    @property
    @abstractmethod
    def found_N(self) -> NDArray[np.bool_]:  # noqa: N802
        """(N,) rows that may be found: the database."""

    @abstractmethod
    def relevant(self, query_Q: Array, row_Q: Array) -> NDArray[np.bool_]:
        """(Q,) whether row ``row_Q[i]`` is relevant to row ``query_Q[i]``; a row to itself is not asked for."""

    @abstractmethod
    def counts(self) -> NDArray[np.int64]:
        """(N,) how many rows of the database are relevant to each row, itself left out; 0 for rows not asked for."""

    @abstractmethod
    def of(self, rows: Array) -> Relevance:
        """The relation of some of the rows (N' indices), in that order."""

    @abstractmethod
    def arrays(self) -> dict[str, Array]:
        """All that makes the relation again, by name; see :func:`relevance_of`."""


@dataclass(frozen=True, kw_only=True)
class SharedLabels(Relevance):
    """Rows of several labels each are relevant to each other when they share one; a row without any is not judged.

    Attributes:
        label_L: int64, the labels of the rows, one behind the other.
        end_N: int64, where the labels of each row end in ``label_L``.
    """

    label_L: NDArray[np.int64]
    end_N: NDArray[np.int64]
    kind: ClassVar[str] = "shared_labels"

    @classmethod
    def from_lists(cls, labels: list[list[int]]) -> SharedLabels:
        """Of N lists of labels, each from 0."""
        flat = [label for row in labels for label in row]
        ends = np.cumsum([len(row) for row in labels], dtype=np.int64)
        return cls(label_L=np.array(flat, dtype=np.int64), end_N=ends)

    def __len__(self) -> int:
        return len(self.end_N)

    @property
    def start_N(self) -> NDArray[np.int64]:  # noqa: N802
        """(N,) where the labels of each row begin."""
        return np.concatenate([[0], self.end_N[:-1]]).astype(np.int64) if len(self) else self.end_N

    @property
    def asked_N(self) -> NDArray[np.bool_]:  # noqa: N802
        """Rows with a label."""
        return np.asarray(self.end_N > self.start_N)

    @property
    def found_N(self) -> NDArray[np.bool_]:  # noqa: N802
        """Rows with a label."""
        return self.asked_N

    def _member(self) -> Any:
        """(N, labels) sparse, 1 where a row has a label."""
        from scipy.sparse import csr_array  # where it is used: scipy takes long to import

        width = int(self.label_L.max(initial=-1)) + 1
        ends = np.concatenate([[0], self.end_N])
        ones = np.ones(len(self.label_L), dtype=np.int32)
        return csr_array((ones, self.label_L, ends), shape=(len(self), max(width, 1)))

    def relevant(self, query_Q: Array, row_Q: Array) -> NDArray[np.bool_]:
        """Whether the two share a label."""
        member = self._member()
        return np.asarray(member[query_Q].multiply(member[row_Q]).sum(axis=1) > 0).reshape(-1)

    def counts(self) -> NDArray[np.int64]:
        """Counted block by block, so that no matrix of all pairs is made."""
        member = self._member()
        counts_N = np.zeros(len(self), dtype=np.int64)
        for start in range(0, len(self), BLOCK_ROWS):
            shared = member[start : start + BLOCK_ROWS] @ member.T
            counts_N[start : start + BLOCK_ROWS] = np.diff(shared.indptr)
        return np.where(self.asked_N, counts_N - 1, 0)  # the row itself shares its labels

    def of(self, rows: Array) -> SharedLabels:
        """The labels of the rows."""
        start_N = self.start_N
        return SharedLabels.from_lists([self.label_L[start_N[row] : self.end_N[row]].tolist() for row in rows])

    def arrays(self) -> dict[str, Array]:
        """The two."""
        return {"label_L": self.label_L, "end_N": self.end_N}


@dataclass(frozen=True, kw_only=True)
class Nearby(Relevance):
    """Photographs of places are relevant to each other within a distance, in metres.

    Attributes:
        position_N2: float64, easting and northing in metres; NaN = not known.
        group_N: int32, positions of different groups (cities, UTM zones) have nothing to do with each other.
        query_N: bool, rows that ask.
        database_N: bool, rows that may be found.
        radius: in metres; a distance that equals it is near enough.
    """

    position_N2: NDArray[np.float64]
    group_N: NDArray[np.int32]
    query_N: NDArray[np.bool_]
    database_N: NDArray[np.bool_]
    radius: float
    kind: ClassVar[str] = "nearby"

    def __len__(self) -> int:
        return len(self.position_N2)

    @property
    def _known_N(self) -> NDArray[np.bool_]:  # noqa: N802
        return np.asarray(np.isfinite(self.position_N2).all(axis=1))

    @property
    def asked_N(self) -> NDArray[np.bool_]:  # noqa: N802
        """Queries whose place is known."""
        return np.asarray(self.query_N & self._known_N)

    @property
    def found_N(self) -> NDArray[np.bool_]:  # noqa: N802
        """Rows of the database, known place or not: those without one mislead like any other."""
        return self.database_N

    def relevant(self, query_Q: Array, row_Q: Array) -> NDArray[np.bool_]:
        """Whether the two are of one group and at most ``radius`` apart."""
        distance_Q = np.linalg.norm(self.position_N2[query_Q] - self.position_N2[row_Q], axis=1)  # NaN is not near
        return np.asarray((self.group_N[query_Q] == self.group_N[row_Q]) & (distance_Q <= self.radius))

    def counts(self) -> NDArray[np.int64]:
        """By a tree of the database of each group."""
        from scipy.spatial import cKDTree  # where it is used: scipy takes long to import

        counts_N = np.zeros(len(self), dtype=np.int64)
        for group in np.unique(self.group_N):
            here_N = (self.group_N == group) & self._known_N
            asked = np.flatnonzero(here_N & self.asked_N)
            found = np.flatnonzero(here_N & self.database_N)
            if len(asked) and len(found):
                tree = cKDTree(self.position_N2[found])
                near = tree.query_ball_point(self.position_N2[asked], self.radius, return_length=True)
                counts_N[asked] = near - self.database_N[asked]
        return counts_N

    def of(self, rows: Array) -> Nearby:
        """The places of the rows."""
        return Nearby(
            position_N2=self.position_N2[rows],
            group_N=self.group_N[rows],
            query_N=self.query_N[rows],
            database_N=self.database_N[rows],
            radius=self.radius,
        )

    def arrays(self) -> dict[str, Array]:
        """The four, and the radius."""
        return {
            "position_N2": self.position_N2,
            "group_N": self.group_N,
            "query_N": self.query_N,
            "database_N": self.database_N,
            "radius": np.array(self.radius),
        }


def relevance_of(kind: str, arrays: Mapping[str, Array]) -> Relevance:
    """The relation whose :meth:`Relevance.arrays` these are."""
    if kind == SharedLabels.kind:
        return SharedLabels(**arrays)
    assert kind == Nearby.kind, kind
    places = {name: values for name, values in arrays.items() if name != "radius"}
    return Nearby(**places, radius=float(arrays["radius"]))
