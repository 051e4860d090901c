"""Rows read straight from a shard object are those that zarr reads, and no wrong byte goes by."""

from __future__ import annotations

import shutil
from dataclasses import replace
from typing import get_args

import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.errors import UserError
from pipeline.representation_store import RepresentationStore
from pipeline.representation_store.arrays import quiet_about_bytes
from pipeline.representation_store.compression import Compressor
from pipeline.representation_store.shards import DamagedShardError, read_rows
from tests.pipeline.representation_store.conftest import make_layout, make_rows

COUNT = 29


@pytest.fixture(scope="module", params=["float16", "int8", "float32"])
def stored(request, tmp_path_factory):
    """A store of one unit, three chunks and a part of a fourth, and its zarr group."""
    layout = replace(make_layout(units=1, capacity=40, views=3, dtype=request.param), rows=40, chunk_rows=8)
    store = RepresentationStore.create(tmp_path_factory.mktemp("shards") / "store", layout, {})
    store.write_unit(0, make_rows(layout, COUNT, 1))
    with quiet_about_bytes():
        group = zarr.open_group(store.path, mode="r")
        return store, {name: group[name][0] for name in store.specs}


@settings(max_examples=60, deadline=None)
@given(
    array=st.sampled_from(["embedding", "task_loss", "top1_correct", "view_params", "label", "key"]),
    bounds=st.tuples(st.integers(0, 40), st.integers(0, 40)).map(sorted),
    view=st.sampled_from([None, 0, 1, 2]),
)
def test_any_rows_of_any_array_are_what_zarr_reads(stored, array, bounds, view):
    store, expected = stored
    (start, stop), spec = bounds, store.specs[array]
    found = read_rows(store.shard_path(array, 0), store.layout, spec, start=start, stop=stop, view=view)
    wanted = expected[array][start:stop]
    wanted = wanted[:, view] if view is not None and "V" in spec.axes else wanted
    assert found.dtype == spec.dtype
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("array", ["embedding", "label"])
def test_every_flipped_bit_is_found_where_it_is_read(stored, array, tmp_path):
    store, _ = stored
    spec, path = store.specs[array], tmp_path / "object"
    good = store.shard_path(array, 0).read_bytes()
    rng = np.random.default_rng(0)
    index = range(len(good) - 20, len(good))
    for place in [*rng.integers(0, len(good), 60).tolist(), *index]:
        path.write_bytes(good[:place] + bytes([good[place] ^ 1 << int(rng.integers(8))]) + good[place + 1 :])
        with pytest.raises(DamagedShardError):
            read_rows(path, store.layout, spec, start=0, stop=40)
    for length in (0, 3, 19, len(good) // 2, len(good) - 1):
        path.write_bytes(good[:length])
        with pytest.raises(DamagedShardError):
            read_rows(path, store.layout, spec, start=0, stop=40)


def test_a_chunk_of_fill_has_no_bytes_and_a_unit_of_fill_no_object(tmp_path):
    layout = replace(make_layout(units=1, capacity=40, views=2), rows=40, chunk_rows=8)
    store = RepresentationStore.create(tmp_path / "store", layout, {})
    rows = make_rows(layout, 9, 1)
    store.write_unit(0, replace(rows, scores={**rows.scores, "task_loss": np.full((9, 2), np.nan, np.float32)}))
    spec = store.specs["embedding"]
    found = read_rows(store.shard_path("embedding", 0), layout, spec, start=0, stop=40)
    assert np.isnan(found[9:]).all()
    np.testing.assert_array_equal(found[:9], rows.embedding_RVD.astype(np.float16))
    assert not store.shard_path("task_loss", 0).exists()
    assert np.isnan(store.read("task_loss", 0)).all()
    assert store.read("task_loss", 0).shape == (9, 2)
    assert store.read("task_loss", 0, view=1, start=2, stop=7).shape == (5,)
    shutil.rmtree(store.path / "embedding" / "c")
    with pytest.raises(UserError, match="array 'embedding': its object is missing"):
        store.read("embedding", 0)


@pytest.mark.parametrize("compressor", get_args(Compressor))
def test_every_compressor_is_undone_and_its_bytes_are_checked_first(tmp_path, compressor):
    layout = replace(make_layout(units=1, capacity=40, views=3, compressor=compressor), rows=40, chunk_rows=8)
    store = RepresentationStore.create(tmp_path / "store", layout, {})
    store.write_unit(0, make_rows(layout, COUNT, 1))
    remote = RepresentationStore.open(store.path)
    remote.__dict__["_files"] = False
    with quiet_about_bytes():
        group = zarr.open_group(store.path, mode="r")
    for array in store.specs:
        np.testing.assert_array_equal(store.read(array, 0), group[array][0][:COUNT])
        np.testing.assert_array_equal(remote.read(array, 0), group[array][0][:COUNT])
    path, rng = store.shard_path("embedding", 0), np.random.default_rng(0)
    good = path.read_bytes()
    for place in rng.integers(0, len(good), 30).tolist():
        path.write_bytes(good[:place] + bytes([good[place] ^ 1 << int(rng.integers(8))]) + good[place + 1 :])
        with pytest.raises(UserError, match=r"unit 0 \(00000.tar\), array 'embedding': .*(checksum|index says)"):
            store.read("embedding", 0)
