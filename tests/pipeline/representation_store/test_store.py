"""The store against zarr alone, and what it refuses."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import zarr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipeline.errors import UserError
from pipeline.files import sha256_file
from pipeline.representation_store import RepresentationStore, UnitInfo, fit_rows
from tests.pipeline.representation_store.conftest import make_layout, make_rows, tree


def test_zarr_alone_reads_what_we_wrote(tmp_path, layout, store_of):
    _, rows = store_of(layout, [40, 0, 7])
    code = (
        "import sys, zarr, numpy as np\n"
        "g = zarr.open_group(sys.argv[1], mode='r')\n"
        "np.savez(sys.argv[2], **{n: a[:] for n, a in g.arrays()})\n"
        "assert not any(m.split('.')[0] in ('pipeline', 'stages') for m in sys.modules)\n"
    )
    out = tmp_path / "read.npz"
    subprocess.run([sys.executable, "-W", "ignore", "-c", code, tmp_path / "store", out], check=True, cwd=tmp_path)
    read = np.load(out)
    assert read["embedding"].shape == (3, 40, 2, 16)
    for unit, count in ((0, 40), (2, 7)):
        np.testing.assert_array_equal(read["embedding"][unit, :count], rows[unit].embedding_RVD.astype(np.float16))
        np.testing.assert_array_equal(read["task_loss"][unit, :count], rows[unit].scores["task_loss"])
        np.testing.assert_array_equal(read["label"][unit, :count], rows[unit].label_R)
        assert [key.decode() for key in read["key"][unit, :count]] == rows[unit].keys
    assert np.isnan(read["embedding"][1]).all()
    assert np.isnan(read["embedding"][2, 7:]).all()
    assert (read["label"][2, 7:] == -1).all()


def test_we_read_what_zarr_alone_wrote(layout, store_of):
    store, _ = store_of(layout, [5])
    value = np.linspace(0, 1, 5 * 2 * 16, dtype=np.float16).reshape(5, 2, 16)
    zarr.open_group(store.path, mode="r+")["embedding"][0, :5] = value
    np.testing.assert_array_equal(store.read("embedding", 0), value)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    counts=st.lists(st.integers(0, 9), min_size=1, max_size=4),
    width=st.integers(1, 20),
    views=st.integers(1, 3),
    data=st.data(),
)
def test_round_trip(tmp_path_factory, counts, width, views, data):
    layout = make_layout(units=len(counts), capacity=9, views=views, width=width)
    path = tmp_path_factory.mktemp("store")
    store = RepresentationStore.create(path, layout, {"class_names": ["a", "b", "c"]})
    rows = [make_rows(layout, count, seed) for seed, count in enumerate(counts)]
    order = data.draw(st.permutations(range(len(counts))))
    for unit in order:
        store.write_unit(unit, rows[unit])
    store = RepresentationStore.open(path)
    assert store.counts() == dict(enumerate(counts))
    np.testing.assert_array_equal(
        store.load("embedding"), np.concatenate([r.embedding_RVD for r in rows]).astype(np.float16)
    )
    view = data.draw(st.integers(0, views - 1))
    np.testing.assert_array_equal(
        store.load("task_loss", view=view), np.concatenate([r.scores["task_loss"][:, view] for r in rows])
    )
    assert store.keys() == [key for r in rows for key in r.keys]
    unit = data.draw(st.integers(0, len(counts) - 1))
    start = data.draw(st.integers(0, counts[unit]))
    np.testing.assert_array_equal(
        store.read("embedding", unit, view=view, start=start, stop=start + 3),
        rows[unit].embedding_RVD[start : start + 3, view].astype(np.float16),
    )


def test_writing_again_writes_the_same_bytes(layout, store_of):
    store, rows = store_of(layout, [40, 3, 7])
    before = tree(store.path)
    stray = store.shard_path("embedding", 1).with_name("0.abc.partial")
    stray.write_bytes(b"killed here")
    (store.commits / "000001.json.abc.partial").write_bytes(b"and here")
    for partial in (stray, store.commits / "000001.json.abc.partial"):
        os.utime(partial, (0, 0))  # of some machine, long ago
    store.write_unit(1, rows[1])
    assert tree(store.path) == before


def test_each_unit_is_one_object_an_array(layout, store_of):
    store, _ = store_of(layout, [40, 3, 7])
    for array in store.specs:
        objects = [p for p in (store.path / array / "c").rglob("*") if p.is_file()]
        assert sorted(objects) == sorted(store.shard_path(array, unit) for unit in range(3))


@pytest.mark.parametrize("at_once", [None, 1, 150, 1 << 20])
def test_a_column_is_what_the_units_hold_in_order(layout, store_of, monkeypatch, at_once):
    if at_once is not None:
        monkeypatch.setattr("pipeline.representation_store.stored.COLUMN_BYTES", at_once)
        monkeypatch.setattr(RepresentationStore, "_files", False)
    store, _ = store_of(
        replace(layout, units=tuple(UnitInfo(name=str(unit)) for unit in range(9))), [5, 0, 40, 1, 2, 9]
    )
    store.withdraw(3)
    for name in ("label", "key"):
        parts = list(store.column(name))
        assert [start for start, _ in parts] == [0, 5, 5, 45, 47]
        np.testing.assert_array_equal(np.concatenate([value for _, value in parts]), store.load(name))


@pytest.mark.parametrize("files", [True, False])
def test_a_damaged_or_missing_object_of_a_column_is_named_by_its_unit(layout, store_of, monkeypatch, files):
    monkeypatch.setattr(RepresentationStore, "_files", files)
    store, _ = store_of(layout, [5, 6, 7])
    path = store.shard_path("label", 1)
    good = path.read_bytes()
    path.write_bytes(bytes([good[0] ^ 1]) + good[1:])
    with pytest.raises(UserError, match=r"unit 1 \(00001.tar\), array 'label'"):
        list(store.column("label"))
    path.unlink()
    with pytest.raises(UserError, match=r"unit 1 \(00001.tar\), array 'label': its object is missing"):
        list(store.column("label"))


def test_another_run_is_refused_with_the_difference(layout, store_of):
    store, _ = store_of(layout, [1])
    with pytest.raises(UserError, match=r'class_names\[1\]: "b" → "z"'):
        RepresentationStore.create(store.path, layout, {"class_names": ["a", "z", "c"]})
    with pytest.raises(UserError, match=r"layout.width: 16 → 8"):
        RepresentationStore.create(store.path, make_layout(width=8), {"class_names": ["a", "b", "c"]})


def test_no_store(tmp_path):
    with pytest.raises(UserError, match="no representation store"):
        RepresentationStore.open(tmp_path)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -70000.0])
def test_a_value_that_float16_cannot_hold_is_refused(layout, store_of, bad):
    store, _ = store_of(layout, [1])
    rows = make_rows(layout, 4, 0)
    rows.embedding_RVD[2, 1, 3] = bad
    with pytest.raises(ValueError, match="not finite or beyond the range of float16"):
        store.write_unit(1, rows)
    assert store.committed() == [0]


def test_wrong_shapes_are_refused(layout, store_of):
    store, _ = store_of(layout, [1])
    with pytest.raises(ValueError, match="room for 40"):
        store.write_unit(1, make_rows(layout, 41, 0))
    with pytest.raises(ValueError, match=r"embedding: shape \(4, 2, 8\), expected \(4, 2, 16\)"):
        store.write_unit(1, make_rows(make_layout(width=8), 4, 0))
    rows = make_rows(layout, 1, 0)
    rows.keys[0] = "much-too-long-a-key"
    with pytest.raises(ValueError, match="longer than the 12 bytes"):
        store.write_unit(1, rows)


def test_scores_of_a_probe(layout, store_of):
    store, _ = store_of(layout, [6])
    scores = make_rows(layout, 6, 99).scores
    sums = store.write_scores(0, scores)
    assert sums["entropy"] == sha256_file(store.shard_path("entropy", 0))
    np.testing.assert_array_equal(store.read("top1_correct", 0), scores["top1_correct"])
    with pytest.raises(ValueError, match="expected"):
        store.write_scores(0, {name: value[:3] for name, value in scores.items()})


def test_a_unit_without_commit_is_not_read(layout, store_of):
    store, _ = store_of(layout, [6, 5])
    store.withdraw(0)
    assert store.counts() == {1: 5}
    assert len(store.load("label")) == 5


def test_a_damaged_commit_record_is_named(layout, store_of):
    store, _ = store_of(layout, [6])
    (store.commits / "000000.json").write_text("{}")
    with pytest.raises(UserError, match=r"000000.json: the record is damaged.*submit verify"):
        RepresentationStore.open(store.path).counts()


@pytest.mark.parametrize(("capacity", "width"), [(1, 1), (300, 64), (10_000, 1024), (10_000, 1280), (7, 200_000)])
def test_row_capacity_is_enough_and_whole_chunks(capacity, width):
    rows, chunk = fit_rows(capacity, width, "float16")
    assert rows >= capacity
    assert rows % chunk == 0
    assert rows - capacity < chunk
    assert chunk == 1 or chunk * width * 2 <= 1 << 20


def test_files_are_durable_before_the_commit(layout, store_of, monkeypatch):
    """Every shard object is synced before the commit record appears under its name."""
    store, _ = store_of(layout, [1])
    events: list[str] = []
    real_fsync, real_replace = os.fsync, Path.replace

    def fsync(descriptor: int) -> None:
        events.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()))
        real_fsync(descriptor)

    def replace(source: Path, target: Path) -> Path:
        events.append(f"rename {Path(target).name}")
        return real_replace(source, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(Path, "replace", replace)
    store.write_unit(1, make_rows(layout, 4, 0))
    commit = events.index("rename 000001.json")
    synced = events[:commit]
    for array in store.specs:
        assert any(name.startswith(str(store.shard_path(array, 1))) for name in synced)
    assert str(store.commits) in events[commit:]


def test_a_tar_that_was_unreadable_when_the_store_was_begun_is_still_the_same_unit(tmp_path):
    """Known now and not then, or then and not now: the store is gone on with, and nothing else may differ."""

    def layout(samples, capacity, **more):
        units = tuple(UnitInfo(name=f"{i}.tar", samples=count) for i, count in enumerate(samples))
        return replace(make_layout(capacity=capacity, **more), units=units)

    def opened(wanted):
        return RepresentationStore.create(tmp_path / "store", wanted, {"seed": 0}).layout

    begun = opened(layout([5, None, 7], 14))
    assert opened(layout([5, 9, 7], 9)) == begun
    assert opened(layout([None, 9, 7], 14)) == begun
    assert opened(layout([5, None, 7], 14)) == begun
    for other in (layout([6, 9, 7], 9), layout([5, 9, 7], 9, width=8), layout([5, 9], 9), layout([5, None, 7], 20)):
        with pytest.raises(UserError, match="another config"):
            opened(other)
