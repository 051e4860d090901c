"""What a store holds, and how its rows are read: whole units, parts of them, or a column of all.

Shapes: R rows of a unit, V views, D width, n rows that are read.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
import zarr
from numpy.typing import NDArray

from pipeline.config import parse
from pipeline.digests import digest
from pipeline.errors import UserError
from pipeline.places import Place, reaching
from pipeline.representation_store.arrays import open_arrays
from pipeline.representation_store.commit_facts import CommitFacts
from pipeline.representation_store.encoding import decode
from pipeline.representation_store.layout import StoreLayout, array_specs, sizes
from pipeline.representation_store.records import Commit, committed_units, read_commit, record_path
from pipeline.representation_store.shards import DamagedShardError, read_rows
from pipeline.run_record import RUN_RECORD, recall

Array = NDArray[Any]
COLUMN_BYTES, COLUMN_UNITS = 1 << 24, 256  # of a column are read at once, at most


class Stored:
    """A store as its readers see it.

    Attributes:
        takes_part: (rows of committed units,) bool, the rows that batches are made of, see :meth:`limited`; None = all.
    """

    def __init__(self, path: Place, layout: StoreLayout, run: Mapping[str, Any]) -> None:
        self.path = path
        self.layout = layout
        self.run = run
        self.specs = array_specs(layout)
        self.takes_part: NDArray[np.bool_] | None = None
        self._facts = CommitFacts(self.commits)

    @classmethod
    def open(cls, path: Place) -> Self:
        """Open a store for reading or for writing further units.

        Raises:
            UserError: there is no store at ``path``, or its record is damaged.
        """
        record = recall(path)
        if record is None:
            raise UserError(
                f"no representation store at {path} (no {RUN_RECORD} there). Make it with `submit stage=cache`."
            )
        return cls.of_record(path, record)

    @classmethod
    def of_record(cls, path: Place, record: Mapping[str, Any]) -> Self:
        """The store at ``path`` whose run record was read already."""
        meaning = record["meaning"]
        return cls(path, parse(StoreLayout, meaning["layout"], f"{path / RUN_RECORD}: layout"), meaning)

    @property
    def class_names(self) -> tuple[str, ...]:
        """The classes that labels index."""
        return tuple(self.run["class_names"])

    @cached_property
    def digest(self) -> str:
        """Hex SHA-256 of everything that decides the bytes."""
        return digest(self.run)

    @property
    def commits(self) -> Place:
        """Folder of the commit records."""
        return self.path / "commits"

    def committed(self) -> list[int]:
        """Units that are done, ascending."""
        return committed_units(self.commits)

    def commit(self, unit: int) -> Commit:
        """The commit record of a unit."""
        return read_commit(record_path(self.commits, unit))

    @cached_property
    def _units(self) -> list[int]:
        return self.committed()

    def counts(self) -> dict[int, int]:
        """True row count of every committed unit; the records are read once for the life of this object."""
        self._facts.learn(self._units)
        return {unit: self._facts[unit].rows for unit in self._units}

    def limited(self, takes_part: NDArray[np.bool_] | None) -> Self:
        """The same store, of which batches hold these rows alone. A row keeps its place; what is read by unit stays."""
        other = copy.copy(self)
        other.takes_part = takes_part
        return other

    def _forget(self, unit: int) -> None:
        self._facts.forget(unit)
        self.__dict__.pop("_units", None)

    @cached_property
    def arrays(self) -> dict[str, zarr.Array[Any]]:
        """The zarr arrays, opened."""
        return open_arrays(self.path, self.layout)

    def read(self, array: str, unit: int, *, view: int | None = None, start: int = 0, stop: int | None = None) -> Array:
        """Rows ``start:stop`` of one committed unit, without the fill, as they are stored.

        Embeddings as numbers, whatever the store's dtype: :meth:`representation`.

        Args:
            array: name of an array of the layout.
            unit: index of the unit.
            view: one view alone (drops the V axis); None = all.
            start: first row.
            stop: row after the last; None or beyond the end = the unit's true row count.

        Returns:
            (n, …) in the array's dtype.

        Raises:
            UserError: a chunk's checksum does not match; names the unit and how to repair it.
        """
        stop = min(self._facts[unit].rows, self.layout.rows if stop is None else stop)
        if self._files:
            return self._read_file(array, unit, view, min(start, stop), stop)
        index: tuple[Any, ...] = (unit, slice(start, stop))
        if view is not None and "V" in self.specs[array].axes:
            index = (*index, view)
        if not self._is_there(array, unit):  # zarr would read fill
            raise self._broken(unit, array, "its object is missing")
        try:
            with reaching(self.path):
                return np.asarray(self.arrays[array][index])
        except UserError:  # not the bytes, the connection
            raise
        except ValueError as error:
            raise self._broken(unit, array, str(error)) from error

    @cached_property
    def _files(self) -> bool:
        """Whether objects are files here, which are read without zarr."""
        return isinstance(self.path, Path)

    def _read_file(self, array: str, unit: int, view: int | None, start: int, stop: int) -> Array:
        spec, path = self.specs[array], Path(str(self.shard_path(array, unit)))
        try:
            return read_rows(path, self.layout, spec, start=start, stop=stop, view=view)
        except FileNotFoundError as error:
            if array in self._facts[unit].stored:
                raise self._broken(unit, array, "its object is missing") from error
            length, axes = sizes(self.layout), spec.axes[1:] if view is None else spec.axes[1:].replace("V", "")
            return np.full((stop - start, *(length[axis] for axis in axes)), spec.fill, dtype=spec.dtype)
        except DamagedShardError as error:
            raise self._broken(unit, array, str(error)) from error

    def representation(self, unit: int, *, view: int | None = None, start: int = 0, stop: int | None = None) -> Array:
        """The embeddings of rows ``start:stop`` of one committed unit, whatever they are stored as.

        Args and errors are those of :meth:`read`.

        Returns:
            (n, V, D) float32, or (n, D) of one view.
        """
        parts = {name: self.read(name, unit, view=view, start=start, stop=stop) for name in self.layout.representation}
        return decode(parts["embedding"], parts.get("scale"))

    def _is_there(self, array: str, unit: int) -> bool:
        """Whether the object of a unit lies where its record says that there is one."""
        return array not in self._facts[unit].stored or self.shard_path(array, unit).exists()

    def _broken(self, unit: int, array: str, what: str) -> UserError:
        return UserError(
            f"{self.path}: unit {unit} ({self.layout.units[unit].name}), array '{array}': {what}. "
            "`submit verify stage=cache` names all such units, and the same `submit stage=cache` rewrites them."
        )

    def load(self, array: str, *, view: int | None = None) -> Array:
        """All committed units' rows, in order, concatenated, as they are stored."""
        parts = [self.read(array, unit, view=view) for unit in self.counts()]
        if parts:
            return np.concatenate(parts)
        axes = self.specs[array].axes.replace("V", "") if view is not None else self.specs[array].axes
        empty = {"R": 0, "V": len(self.layout.views), "D": self.layout.width, "P": len(self.layout.view_params)}
        return np.empty([empty[axis] for axis in axes], dtype=self.specs[array].dtype)

    def column(self, array: str) -> Iterator[tuple[int, Array]]:
        """Place of the first row, and values, of the committed units in order: of ``label`` or ``key``, without views.

        From an object store many units are read at once, so that 20,000 small ones take seconds, and little is held.

        Raises:
            UserError: as :meth:`read` does.
        """
        counts, start = self.counts(), 0
        unit_bytes = self.layout.rows * np.dtype(self.specs[array].dtype).itemsize
        at_once = 1 if self._files else min(COLUMN_UNITS, max(1, COLUMN_BYTES // unit_bytes))
        for units in _runs(list(counts), at_once):
            found = self._region(array, units)
            for unit, value in zip(units, found, strict=True):
                yield start, value[: counts[unit]]
                start += counts[unit]

    def _region(self, array: str, units: Sequence[int]) -> Array | list[Array]:
        """(units, R) of neighbouring units; where that fails, one by one, so that the error names the unit."""
        if len(units) > 1 and all(self._is_there(array, unit) for unit in units):
            with suppress(UserError, ValueError):
                return np.asarray(self.arrays[array][units[0] : units[-1] + 1])
        return [self.read(array, unit) for unit in units]

    def representations(self, *, view: int | None = None) -> Array:
        """The embeddings of all committed rows, in order: (N, V, D) float32, or (N, D) of one view."""
        parts = {name: self.load(name, view=view) for name in self.layout.representation}
        return decode(parts["embedding"], parts.get("scale"))

    def keys(self) -> list[str]:
        """Keys of all committed rows, in order."""
        return [key.decode() for key in self.load("key")]

    def shard_path(self, array: str, unit: int) -> Place:
        """The one object that holds a unit's region of an array."""
        return self.path / array / "c" / "/".join([str(unit), *("0" for _ in self.specs[array].axes)])


def _runs(units: Sequence[int], longest: int) -> Iterator[list[int]]:
    """``units``, ascending, cut into runs of neighbours."""
    run: list[int] = []
    for unit in units:
        if run and (unit != run[-1] + 1 or len(run) == longest):
            yield run
            run = []
        run.append(unit)
    if run:
        yield run
