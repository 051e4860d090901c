"""Whatever is changed in any object, verify names the unit."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from pipeline.errors import UserError
from pipeline.progress import Silent
from pipeline.representation_store import RepresentationStore
from pipeline.representation_store.verify import discard, verify
from pipeline.sealed import read_sealed, write_sealed
from tests.pipeline.representation_store.conftest import make_layout, tree


def found(store: RepresentationStore) -> dict[int | None, str]:
    return {problem.unit: problem.what for problem in verify(store.path, Silent())}


def test_a_whole_store_is_well(layout, store_of):
    store, _ = store_of(layout, [40, 0, 7])
    assert found(store) == {}


def flip(path: Path, rng: np.random.Generator) -> None:
    data = bytearray(path.read_bytes())
    data[int(rng.integers(len(data)))] ^= 1 << int(rng.integers(8))
    path.write_bytes(data)


def targets(store: RepresentationStore, rng: np.random.Generator) -> list[Path]:
    """Objects to damage: every one twice, and further ones as often as they are large."""
    objects = [path for path in sorted(store.path.rglob("*")) if path.is_file()]
    size = np.array([path.stat().st_size for path in objects])
    return [*objects * 2, *rng.choice(objects, 50, p=size / size.sum())]


@pytest.mark.parametrize(("dtype", "compressor"), [("float16", "none"), ("int8", "blosc-zstd-bitshuffle")])
def test_any_flipped_bit_in_any_object_is_found_and_repaired_by_going_on(store_of, dtype, compressor, monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)  # a hundred repairs: durability is tested elsewhere
    layout = make_layout(units=2, capacity=12, dtype=dtype, compressor=compressor)
    store, rows = store_of(layout, [12, 5])
    before, rng = tree(store.path), np.random.default_rng(0)
    tried = targets(store, rng)
    for path in tried:
        flip(path, rng)
        problems = verify(store.path, Silent())
        (unit,) = {problem.unit for problem in problems}
        if path.name == "zarr.json" or path.parent == store.path:
            assert [problem.path for problem in problems] == [path]
        else:
            assert path in (store.shard_path(array, unit) for array in store.specs) or path.stem == f"{unit:06d}"
        assert all(str(path) in problem.what for problem in problems)
        discard(store.path, problems)
        again = RepresentationStore.create(store.path, layout, {"class_names": ["a", "b", "c"]})
        for missing in {0, 1} - set(again.committed()):
            again.write_unit(missing, rows[missing])
        assert tree(store.path) == before
    assert len(tried) >= 100
    assert verify(store.path, Silent()) == []


def test_a_lost_record_is_made_again_only_if_it_fits_the_committed_units(layout, store_of):
    store, _ = store_of(layout, [12, 5])
    before, rng = tree(store.path), np.random.default_rng(0)
    for name in ("run.json", "run.copy.json"):
        flip(store.path / name, rng)
    problems = verify(store.path, Silent())
    assert [problem.path.name for problem in problems] == ["run.json", "run.copy.json"]
    discard(store.path, problems)
    assert (store.path / "run.json.damaged").exists()
    with pytest.raises(UserError, match=r"unit 0 was committed under another one than this config gives"):
        RepresentationStore.create(store.path, layout, {"class_names": ["a", "b", "c"], "compute": "bf16"})
    RepresentationStore.create(store.path, layout, {"class_names": ["a", "b", "c"]})
    assert {name: found for name, found in tree(store.path).items() if ".damaged" not in name} == before


def test_units_of_another_run_and_copies_that_differ_are_found(layout, store_of):
    store, _ = store_of(layout, [12, 5])
    commit = store.commits / "000001.json"
    write_sealed(commit, {**read_sealed(commit), "run": "0" * 64})
    assert found(store) == {1: "it was committed under another run record"}
    store.withdraw(1)
    copy = store.path / "run.copy.json"
    write_sealed(copy, {**read_sealed(copy), "code": "another"})
    assert found(store) == {None: f"{copy} is not a copy of run.json"}


def test_a_damaged_zarr_json_is_told_to_those_who_read_by_zarr(layout, store_of, monkeypatch):
    monkeypatch.setattr(RepresentationStore, "_files", False)
    store, _ = store_of(layout, [12])
    path = store.path / "label" / "zarr.json"
    path.write_bytes(path.read_bytes().replace(b"sharding_indexed", b"sharding_indexee"))
    with pytest.raises(UserError, match=r"a zarr.json is missing or damaged .*submit verify stage=cache"):
        RepresentationStore.open(store.path).read("label", 0)


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
    record = read_sealed(store.path / "run.json")
    record["meaning"]["layout"]["units"][1]["samples"] = 4
    for name in ("run.json", "run.copy.json"):
        write_sealed(store.path / name, record)
    whats = [problem.what for problem in verify(store.path, Silent()) if problem.unit == 1]
    assert whats == [
        "it was committed under another run record",
        "3 rows and 0 quarantined, but the manifest promises 4 samples",
    ]
