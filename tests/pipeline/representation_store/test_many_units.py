"""Many tiny units cost index arithmetic and little else: memory, and files that are opened."""

from __future__ import annotations

import gc
import tracemalloc

import numpy as np
import pytest

from pipeline.heads.base import Needs
from pipeline.representation_store import RepresentationStore
from pipeline.representation_store.reader import BatchReader, Reading
from tests.pipeline.representation_store.many import ROWS, many_units

FEW, MANY = 100, 500
READING = Reading(batch_size=32, window=64, memory=0, threads=1)


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    return {units: many_units(tmp_path_factory.mktemp("many") / "store", units).path for units in (FEW, MANY)}


def begin(path):
    """Bytes held once the first batch is there, beside the store's run record."""
    store = RepresentationStore.open(path)
    gc.collect()
    tracemalloc.start()
    reader = BatchReader(store, Needs(task_loss=True), READING)
    batches = reader.batches(0, 1)
    next(batches)
    batches.close()
    gc.collect()
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return held


def test_a_unit_costs_less_than_a_kilobyte(paths):
    begin(paths[FEW])  # modules, zarr's loop and its metadata
    held = {units: begin(path) for units, path in paths.items()}
    assert (held[MANY] - held[FEW]) / (MANY - FEW) < 800


def test_the_first_batch_opens_as_many_objects_whatever_the_number_of_units(paths, monkeypatch):
    opened = {}
    for units, path in paths.items():
        read = []
        original = RepresentationStore.read
        monkeypatch.setattr(
            RepresentationStore,
            "read",
            lambda self, *args, _read=read, _original=original, **more: (
                _read.append(args),
                _original(self, *args, **more),
            )[1],
        )
        begin(path)
        opened[units] = len(read)
        monkeypatch.undo()
    assert 0 < max(opened.values()) <= 2 * 2 * READING.window // ROWS  # two windows, two arrays


def test_a_column_of_many_units_is_read_in_few_calls_from_an_object_store(paths, monkeypatch):
    monkeypatch.setattr(RepresentationStore, "_files", False)
    store = RepresentationStore.open(paths[MANY])
    monkeypatch.setattr(RepresentationStore, "read", None)  # not one by one
    label = np.concatenate([value for _, value in store.column("label")])
    assert len(label) == MANY * ROWS
    assert (label.reshape(MANY, ROWS) == label[:ROWS]).all()
