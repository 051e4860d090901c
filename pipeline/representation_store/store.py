"""One representation store on disk: created once, written unit by unit, read by anyone with zarr.

Every unit's region of every array is exactly one shard object, written whole; the unit's commit record is written
last. So a process killed at any moment leaves a unit either committed or to be done again, with the same bytes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from pipeline.config import to_plain
from pipeline.errors import UserError
from pipeline.faults import Quarantined
from pipeline.files import sweep_partials, write_bytes
from pipeline.places import Place
from pipeline.representation_store.arrays import create_arrays, shard_bytes
from pipeline.representation_store.encoding import encode
from pipeline.representation_store.layout import SCORES, StoreLayout, as_begun, shard_shape
from pipeline.representation_store.records import Commit, withdraw_commit, write_commit
from pipeline.representation_store.rows import UnitRows, check_rows
from pipeline.representation_store.stored import Stored
from pipeline.run_record import RUN_RECORD, keep_copy, recall, refuse_other, restore

Array = NDArray[Any]


class RepresentationStore(Stored):
    """A store that exists. Make one with :meth:`create`, or open one with :meth:`open`."""

    @classmethod
    def create(cls, path: Place, layout: StoreLayout, run: Mapping[str, Any]) -> Self:
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

    def _refuse_strangers(self) -> None:
        """Refuse to write a run record beside units that were committed under another one."""
        for unit in self.committed():
            if self.commit(unit).run != self.digest:
                raise UserError(
                    f"{self.path}: its {RUN_RECORD} and the copy are lost, and unit {unit} was committed under another "
                    "one than this config gives. Was `auto` something else on the machine that began it (backbone."
                    "compute, backbone.channels_last)? Set it, or remove the folder."
                )

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


def store_inside(folder: Place) -> Place:
    """The store of a run folder of ``stage=cache``; a folder that is a store itself is given back."""
    inner = folder / "store"
    return inner if inner.is_dir() else folder
