"""What int8 keeps of an embedding, and that every compressor gives back what it was given."""

from __future__ import annotations

import json
from fractions import Fraction
from typing import get_args

import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numcodecs import blosc

from pipeline.config import to_plain
from pipeline.representation_store import Compressor, Dtype, RepresentationStore, bytes_a_row, fit_rows, largest
from pipeline.representation_store.encoding import as_stored, decode, encode, in_range
from tests.pipeline.representation_store.conftest import make_layout, make_rows

FINITE = st.floats(-(2.0**127), 2.0**127, width=32, allow_subnormal=True)


@settings(max_examples=100, deadline=None)
@given(arrays(np.float32, (3, 5), elements=FINITE))
def test_int8_is_within_half_a_step_of_every_value(embedding_ND):
    stored = encode(embedding_ND, "int8")
    code_ND, scale_N = stored["embedding"], stored["scale"]
    assert code_ND.dtype == np.int8
    assert scale_N.dtype == np.float32
    assert code_ND.min() >= -127
    read_ND = decode(code_ND, scale_N)
    assert np.isfinite(read_ND).all()
    assert ((read_ND == 0) | (np.sign(read_ND) == np.sign(embedding_ND))).all()
    for row, read, scale in zip(embedding_ND, read_ND, scale_N, strict=True):
        largest_in_row = max(abs(Fraction(float(value))) for value in row)
        # of float32: its relative rounding, and near zero its smallest step, 127 times
        slack = largest_in_row / 2**22 + 127 * Fraction(2) ** -149
        step = Fraction(float(scale))
        assert abs(step * 127 - largest_in_row) <= slack
        for value, found in zip(row, read, strict=True):
            assert abs(Fraction(float(value)) - Fraction(float(found))) <= step / 2 + slack


def test_int8_by_hand():
    stored = encode(np.array([[127, -63.5, 2.5, 3.5, -0.4], [0, 0, 0, 0, 0]], np.float32), "int8")
    assert stored["scale"].tolist() == [1, 0]
    assert stored["embedding"].tolist() == [[127, -64, 2, 4, 0], [0, 0, 0, 0, 0]]  # halves go to the even neighbour
    assert decode(stored["embedding"], stored["scale"]).tolist() == [[127, -64, 2, 4, 0], [0, 0, 0, 0, 0]]


@pytest.mark.parametrize("dtype", get_args(Dtype))
def test_the_largest_value_is_stored_and_read_as_a_number(dtype):
    top = np.float32(largest(dtype))
    above = np.float32(np.inf) if dtype == "float32" else np.nextafter(top, np.float32(np.inf))
    embedding = np.array([[top, 1], [-top, 0], [above, 0], [np.nan, 0]], np.float32)
    assert in_range(embedding, dtype).tolist() == [True, True, False, False]
    assert np.isfinite(as_stored(embedding[:2], dtype)).all()


@pytest.mark.parametrize(("dtype", "bytes_a_dimension"), [("float32", 4.01), ("float16", 2.01), ("int8", 1.01)])
def test_bytes_of_a_row(tmp_path, dtype, bytes_a_dimension):
    layout = make_layout(units=1, capacity=64, views=2, width=1280, dtype=dtype)
    store = RepresentationStore.create(tmp_path, layout, {})
    store.write_unit(0, make_rows(layout, 64, 0))
    size = {array: store.shard_path(array, 0).stat().st_size for array in store.specs}
    assert sum(size[array] for array in layout.representation) <= bytes_a_dimension * 64 * 2 * 1280
    assert 0 <= sum(size.values()) - 64 * bytes_a_row(layout) <= 30 * 16 * len(size)  # checksums and shard indices


def test_int8_rows_of_a_store_read_as_numbers_and_unfilled_ones_as_nan(store_of):
    store, rows = store_of(make_layout(dtype="int8"), [40, 0, 7])
    expected = as_stored(np.concatenate([r.embedding_RVD for r in rows]), "int8")
    np.testing.assert_array_equal(store.representations(), expected)
    np.testing.assert_array_equal(store.representations(view=1), expected[:, 1])
    np.testing.assert_array_equal(store.representation(2, view=1, start=3), expected[43:, 1])
    group = zarr.open_group(store.path, mode="r")
    beyond = decode(group["embedding"][1:], group["scale"][1:])
    assert np.isnan(beyond[0]).all()
    assert np.isnan(beyond[1, 7:]).all()
    store.withdraw(0)
    store.withdraw(1)
    store.withdraw(2)
    assert store.representations().shape == (0, 2, 16)


@pytest.mark.parametrize("dtype", get_args(Dtype))
@pytest.mark.parametrize("compressor", get_args(Compressor))
def test_every_compressor_gives_back_what_it_got_and_ends_in_a_checksum(tmp_path, compressor, dtype):
    layout = make_layout(units=1, dtype=dtype, compressor=compressor, compression_level=5)
    rows = make_rows(layout, 40, 1)
    RepresentationStore.create(tmp_path, layout, {"seed": 0}).write_unit(0, rows)
    store = RepresentationStore.open(tmp_path)
    assert store.layout == layout
    np.testing.assert_array_equal(store.representations(), as_stored(rows.embedding_RVD, dtype))
    np.testing.assert_array_equal(store.load("task_loss"), rows.scores["task_loss"])
    assert store.keys() == rows.keys
    for array in store.specs:
        (sharding,) = json.loads((tmp_path / array / "zarr.json").read_text())["codecs"]
        names = [codec["name"] for codec in sharding["configuration"]["codecs"]]
        assert names[0] == "bytes"
        assert names[-1] == "crc32c"
        assert len(names) == (2 if compressor == "none" else 3)


@pytest.mark.parametrize("compressor", [name for name in get_args(Compressor) if name != "none"])
def test_compressed_bytes_do_not_depend_on_threads(tmp_path, compressor):
    layout = make_layout(units=1, capacity=512, width=256, compressor=compressor)  # chunks of several blosc blocks
    rows = make_rows(layout, 512, 1)
    assert blosc.use_threads is False  # with several, blosc's zstd does give other bytes
    sums = []
    for threads in (1, 3):
        before = blosc.set_nthreads(threads)
        store = RepresentationStore.create(tmp_path / str(threads), layout, {})
        with zarr.config.set({"async.concurrency": threads, "threading.max_workers": threads}):
            sums.append(store.write_unit(0, rows).checksums)
        blosc.set_nthreads(before)
    assert sums[0] == sums[1]


def test_the_compressor_is_part_of_what_a_store_is():
    one, other = make_layout(compressor="zstd"), make_layout(compressor="zstd", compression_level=4)
    assert to_plain(one) != to_plain(make_layout())
    assert to_plain(one) != to_plain(other)


def test_chunks_of_one_byte_a_value_hold_as_many_bytes_as_others():
    assert fit_rows(10_000, 1024, "int8")[1] == 2 * fit_rows(10_000, 1024, "float16")[1] == 1024
