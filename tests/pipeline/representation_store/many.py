"""Stores of very many tiny units, made quickly: every unit's objects are the same few files."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from pipeline.digests import digest
from pipeline.files import json_bytes
from pipeline.representation_store import RepresentationStore
from pipeline.representation_store.records import record_path
from pipeline.sealed import read_sealed
from tests.pipeline.representation_store.conftest import make_layout, make_rows

ROWS = 4  # a unit
ARRAYS = ("embedding", "task_loss", "label", "key")  # that are there


def many_units(path: Path, units: int) -> RepresentationStore:
    """Units of the same four rows each; nothing is flushed to the disk, since nobody will miss it."""
    layout = replace(make_layout(units=units, capacity=ROWS, views=1, width=8), compressor="none")
    store = RepresentationStore.create(path, layout, {"class_names": ["a", "b", "c"]})
    store.write_unit(0, make_rows(layout, ROWS, 0))
    plain = read_sealed(record_path(store.commits, 0))
    plain["checksums"] = {name: plain["checksums"][name] for name in ARRAYS}
    folders = {name: store.shard_path(name, 0).relative_to(path / name / "c" / "0").parent for name in ARRAYS}
    for unit in range(1, units):
        for name, inner in folders.items():
            target = store.shard_path(name, unit)
            (path / name / "c" / str(unit) / inner).mkdir(parents=True)
            os.link(store.shard_path(name, 0), target)
        record = {**plain, "unit": unit, "name": layout.units[unit].name}
        record_path(store.commits, unit).write_bytes(json_bytes({**record, "seal": digest(record)}))
    return RepresentationStore.open(path)
