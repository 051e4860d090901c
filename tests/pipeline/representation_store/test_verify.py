"""Whatever is changed in any object, verify names the unit."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline.errors import UserError
from pipeline.files import read_json, write_json
from pipeline.progress import Silent
from pipeline.representation_store import RepresentationStore
from pipeline.representation_store.verify import verify


def found(store: RepresentationStore) -> dict[int, str]:
    return {problem.unit: problem.what for problem in verify(RepresentationStore.open(store.path), Silent())}


def test_a_whole_store_is_well(layout, store_of):
    store, _ = store_of(layout, [40, 0, 7])
    assert found(store) == {}


def test_any_flipped_bit_is_found(layout, store_of):
    store, _ = store_of(layout, [40, 3, 7])
    rng = np.random.default_rng(0)
    for _ in range(60):
        unit, array = int(rng.integers(3)), str(rng.choice(list(store.specs)))
        path = store.shard_path(array, unit)
        good = path.read_bytes()
        bad = bytearray(good)
        position = int(rng.integers(len(bad)))
        bad[position] ^= 1 << int(rng.integers(8))
        path.write_bytes(bytes(bad))
        problems = found(store)
        assert list(problems) == [unit], (array, position)
        assert array in problems[unit]
        path.write_bytes(good)


def test_a_missing_object_is_found_and_never_read_as_fill(layout, store_of):
    store, _ = store_of(layout, [40, 3, 7])
    store.shard_path("embedding", 1).unlink()
    assert "is missing" in found(store)[1]
    with pytest.raises(UserError, match=r"unit 1 .*its object is missing.*submit stage=cache"):
        store.read("embedding", 1)


def test_reading_a_changed_chunk_says_which_unit(layout, store_of):
    store, _ = store_of(layout, [40])
    path = store.shard_path("embedding", 0)
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(bytes(data))
    with pytest.raises(UserError, match=r"unit 0 \(00000.tar\), array 'embedding': .*checksum"):
        store.read("embedding", 0)


def test_fewer_rows_than_promised_are_found(layout, store_of):
    store, _ = store_of(layout, [40, 3])
    record = read_json(store.path / "run.json")
    record["meaning"]["layout"]["units"][1]["samples"] = 4
    write_json(store.path / "run.json", record)
    assert "the manifest promises 4 samples" in found(store)[1]
