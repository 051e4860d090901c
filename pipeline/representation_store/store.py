"""One representation store on disk: created once, written unit by unit, read by anyone with zarr.

Every unit's region of every array is exactly one shard object, written whole; the unit's commit record is written
last. So a process killed at any moment leaves a unit either committed or to be done again, with the same bytes.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from numpy.typing import NDArray

from pipeline.config import parse, to_plain
from pipeline.digests import digest
from pipeline.errors import UserError
from pipeline.faults import Quarantined
from pipeline.files import sweep_partials, write_bytes
from pipeline.places import Place, reaching
from pipeline.representation_store.arrays import create_arrays, open_arrays, shard_bytes
from pipeline.representation_store.commit_facts import CommitFacts
from pipeline.representation_store.encoding import decode, encode
from pipeline.representation_store.layout import SCORES, StoreLayout, array_specs, as_begun, shard_shape, sizes
from pipeline.representation_store.records import (
    Commit,
    committed_units,
    read_commit,
    record_path,
    withdraw_commit,
    write_commit,
)
from pipeline.representation_store.rows import UnitRows, check_rows
from pipeline.representation_store.shards import DamagedShardError, read_rows
from pipeline.run_record import RUN_RECORD, keep_copy, recall, refuse_other, restore

Array = NDArray[Any]
COLUMN_BYTES, COLUMN_UNITS = 1 << 24, 256  # of a column are read at once, at most


class RepresentationStore:
    """A store that exists. Make one with :meth:`create`, or open one with :meth:`open`.

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
    def create(cls, path: Place, layout: StoreLayout, run: Mapping[str, Any]) -> RepresentationStore:
        """Make the store, or go on with the one that lies there if it is of the same run.

        Args:
            path: the folder of the Zarr group.
            layout: its shapes.
            run: plain values that decide the content: ``backbone``, ``views``, ``seed``, ``class_names`` …

        Raises:
            UserError: a store of another run lies there; the message is the difference. Or its record is lost, and its
                units were committed under another one.
        """
        restore(path)
        if begun := recall(path):
            layout = as_begun(layout, cls.of_record(path, begun).layout)
        store = cls(path, layout, {**run, "layout": to_plain(layout)})
        if not begun:
            store._refuse_strangers()
        refuse_other(path / RUN_RECORD, store.run, "representation store")
        keep_copy(path)
        create_arrays(path, layout)
        return store

    @classmethod
    def open(cls, path: Place) -> RepresentationStore:
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
    def of_record(cls, path: Place, record: Mapping[str, Any]) -> RepresentationStore:
        """The store at ``path`` whose run record was read already."""
        meaning = record["meaning"]
        return cls(path, parse(StoreLayout, meaning["layout"], f"{path / RUN_RECORD}: layout"), meaning)

    def _refuse_strangers(self) -> None:
        """Refuse to write a run record beside units that were committed under another one."""
        for unit in self.committed():
            if self.commit(unit).run != self.digest:
                raise UserError(
                    f"{self.path}: its {RUN_RECORD} and the copy are lost, and unit {unit} was committed under another "
                    "one than this config gives. Was `auto` something else on the machine that began it (backbone."
                    "compute, backbone.channels_last)? Set it, or remove the folder."
                )

    # -- what it holds

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

    def limited(self, takes_part: NDArray[np.bool_] | None) -> RepresentationStore:
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

    # -- writing

    def write_unit(self, unit: int, rows: UnitRows, quarantined: Sequence[Quarantined] = ()) -> Commit:
        """Store a unit's rows, then its commit record. Doing it again writes the same bytes.

        Raises:
            ValueError: shapes do not fit the layout, a value is not finite or out of range.
            UserError: more rows, or a longer key, than the store was made for.
        """
        check_rows(rows, self.layout)
        keys = np.array([key.encode() for key in rows.keys], dtype=self.specs["key"].dtype)
        values = {
            **encode(rows.embedding_RVD, self.layout.dtype),
            "view_params": rows.view_params_RVP,
            "label": rows.label_R,
            "key": keys,
            **rows.scores,
        }
        checksums = {name: self._write_shard(name, unit, value) for name, value in values.items()}
        sweep_partials(self.commits)
        commit = Commit(
            unit=unit,
            name=self.layout.units[unit].name,
            run=self.digest,
            rows=len(rows.keys),
            quarantined=tuple(quarantined),
            checksums=checksums,
        )
        write_commit(self.commits, commit)
        self._forget(unit)
        return commit

    def write_scores(self, unit: int, scores: Mapping[str, Array]) -> dict[str, str | None]:
        """Store what a probe says of a committed unit's rows; the probe keeps the record of it.

        Returns:
            The checksum of each shard object.
        """
        if set(scores) != set(SCORES):
            raise ValueError(f"scores must be {', '.join(SCORES)}; got {', '.join(scores)}")
        expected = (self.counts()[unit], len(self.layout.views))
        for name, value in scores.items():
            if value.shape != expected:
                raise ValueError(f"{name}: shape {value.shape}, expected {expected}")
        return {name: self._write_shard(name, unit, value) for name, value in scores.items()}

    def withdraw(self, unit: int) -> None:
        """Take a unit's commit back, so that it is done again."""
        withdraw_commit(self.path, unit)
        self._forget(unit)

    def shard_path(self, array: str, unit: int) -> Place:
        """The one object that holds a unit's region of an array."""
        return self.path / array / "c" / "/".join([str(unit), *("0" for _ in self.specs[array].axes)])

    def _write_shard(self, name: str, unit: int, value: Array) -> str | None:
        spec, path = self.specs[name], self.shard_path(name, unit)
        region = np.full(shard_shape(self.layout, spec)[1:], spec.fill, dtype=spec.dtype)
        region[: len(value)] = value
        sweep_partials(path.parent)
        data = shard_bytes(self.layout, name, region)
        if data is None:  # nothing but fill
            path.unlink(missing_ok=True)
            return None
        write_bytes(path, data)
        return hashlib.sha256(data).hexdigest()


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


def store_inside(folder: Place) -> Place:
    """The store of a run folder of ``stage=cache``; a folder that is a store itself is given back."""
    inner = folder / "store"
    return inner if inner.is_dir() else folder
