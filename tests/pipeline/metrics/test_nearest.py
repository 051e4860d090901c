"""The neighbour equals a loop over float64 distances, whatever the chunk size, ties, duplicates and scale."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from pipeline.errors import UserError
from pipeline.metrics.nearest import nearest_neighbour, nearest_neighbours


def brute_force(rows: np.ndarray, metric: str, count: int = 1) -> list:
    """All float64 distances of each row; the smallest win, the first of equal ones before the others."""
    rows = rows.astype(np.float32)
    if metric == "cosine":
        norms = [[np.sqrt(np.sum(row.astype(np.float64) ** 2))] for row in rows]
        rows = (rows / np.array(norms).reshape(-1, 1)).astype(np.float32)
    found = []
    for index, row in enumerate(rows.astype(np.float64)):
        distance = np.sum((row - rows.astype(np.float64)) ** 2, axis=1)
        order = [int(other) for other in np.argsort(distance, kind="stable") if other != index]
        found.append((order + [-1] * count)[:count])
    return [near[0] for near in found] if count == 1 else found


shapes = st.tuples(st.integers(0, 24), st.integers(1, 9))
grid = hnp.arrays(np.float32, shapes, elements=st.integers(-2, 2).map(float))  # ties and duplicates in plenty
wild = hnp.arrays(np.float32, shapes, elements=st.floats(-60000, 60000, width=16))


@given(rows=st.one_of(grid, wild), chunk_bytes=st.integers(1, 5000))
def test_equals_brute_force_for_l2(rows: np.ndarray, chunk_bytes: int) -> None:
    assert nearest_neighbour(rows, metric="l2", chunk_bytes=chunk_bytes).tolist() == brute_force(rows, "l2")


@given(rows=st.one_of(grid, wild), chunk_bytes=st.integers(1, 5000))
def test_equals_brute_force_for_cosine(rows: np.ndarray, chunk_bytes: int) -> None:
    rows = rows[(rows != 0).any(axis=1)]
    assert nearest_neighbour(rows, chunk_bytes=chunk_bytes).tolist() == brute_force(rows, "cosine")


@given(rows=st.one_of(grid, wild), count=st.integers(2, 30), chunk_bytes=st.integers(1, 5000))
def test_several_neighbours_equal_brute_force(rows: np.ndarray, count: int, chunk_bytes: int) -> None:
    found = nearest_neighbours(rows, count=count, metric="l2", chunk_bytes=chunk_bytes)
    assert found.shape == (len(rows), count)
    assert found.tolist() == brute_force(rows, "l2", count)


@pytest.mark.parametrize("metric", ["cosine", "l2"])
@pytest.mark.parametrize("spread", [1e-6, 1e-3, 1.0])
def test_tight_clusters_far_from_the_origin(metric: str, spread: float) -> None:
    """A plain float32 product picks wrong neighbours here: the differences drown in the rounding."""
    rng = np.random.default_rng(0)
    centres = 50 + rng.normal(size=(5, 1, 24))
    rows = (centres + spread * rng.normal(size=(5, 30, 24))).reshape(-1, 24).astype(np.float32)
    assert nearest_neighbour(rows, metric=metric).tolist() == brute_force(rows, metric)
    assert nearest_neighbours(rows, count=7, metric=metric).tolist() == brute_force(rows, metric, 7)


def test_one_far_outlier_does_not_blur_the_others() -> None:
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(60, 8)).astype(np.float32)
    rows[17] = 1e9
    assert nearest_neighbour(rows, metric="l2").tolist() == brute_force(rows, "l2")


def test_self_is_left_out_by_index_and_ties_go_to_the_lowest() -> None:
    rows = np.array([[1, 0], [0, 1], [1, 0], [1, 0], [0, 1], [1, 1]], dtype=np.float32)
    assert nearest_neighbour(rows).tolist() == [2, 4, 0, 0, 1, 0]


def test_constant_rows_are_quick_and_find_the_lowest_other() -> None:
    assert nearest_neighbour(np.ones((3000, 16), dtype=np.float32)).tolist() == [1] + [0] * 2999


def test_negative_zero_is_zero() -> None:
    rows = np.array([[5, 5], [0.0, 1], [-0.0, 1]], dtype=np.float32)
    assert nearest_neighbour(rows, metric="l2").tolist() == [1, 2, 1]


def test_float16_is_read_exactly_and_the_input_is_left_alone() -> None:
    rows = np.random.default_rng(2).normal(size=(40, 5)).astype(np.float16)
    before = rows.copy()
    assert nearest_neighbour(rows).tolist() == brute_force(rows, "cosine")
    assert (rows == before).all()
    single = rows.astype(np.float32)
    nearest_neighbour(single)
    assert (single == before).all()


def test_product_precision_is_raised_and_put_back() -> None:
    rows = np.random.default_rng(3).normal(size=(200, 64)).astype(np.float32)
    expected = nearest_neighbour(rows)
    torch.set_float32_matmul_precision("medium")
    try:
        assert (nearest_neighbour(rows) == expected).all()
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision("highest")


@pytest.mark.parametrize("rows", [np.zeros((0, 4)), np.zeros((1, 4)) + 1])
def test_no_other_row(rows: np.ndarray) -> None:
    assert nearest_neighbour(rows).tolist() == [-1] * len(rows)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([[1, 2], [np.nan, np.nan], [np.inf, 1]], "2 of 3 rows are NaN or infinite, the first at index 1"),
        ([[1, 2], [0, 0]], "row at index 1 is zero"),
        ([1, 2], r"shape \(2,\)"),
    ],
)
def test_what_has_no_neighbour_is_refused(rows: list, message: str) -> None:
    with pytest.raises(UserError, match=message):
        nearest_neighbour(np.array(rows, dtype=np.float32))
