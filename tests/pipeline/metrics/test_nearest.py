"""The neighbour equals a loop over float64 distances, whatever the chunk size, ties, duplicates and scale."""

import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from pipeline.errors import UserError
from pipeline.metrics.candidates import candidates
from pipeline.metrics.distances import closest_pairs
from pipeline.metrics.faiss_candidates import faiss_candidates
from pipeline.metrics.nearest import nearest_neighbour, nearest_neighbours, searching


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


@pytest.mark.parametrize("tile_rows", [24, 40, 64, 200])
@pytest.mark.parametrize("count", [1, 6, 30])
def test_tiles_of_rows_whose_norms_differ_by_orders_of_magnitude(count: int, tile_rows: int) -> None:
    """Near neighbours lie in other tiles, the last tile is smaller, and some are looked at in groups of rows."""
    rng = np.random.default_rng(count)
    rows = rng.normal(size=(150, 12)) * rng.lognormal(0, 3, (150, 1))
    rows[75:] = rows[:75] + 1e-5 * rng.normal(size=(75, 12))
    rows[140] = rows[3]
    rows = rows.astype(np.float32)
    found = nearest_neighbours(rows, count=count, metric="l2", chunk_bytes=4 * tile_rows**2)
    assert found.tolist() == [np.ravel(row).tolist() for row in brute_force(rows, "l2", count)]


def test_rows_equally_far_from_each_other_are_dropped_while_they_wait() -> None:
    """All pairs are candidates: those that wait are cut down to the lowest ones, and the lowest win."""
    rows = np.eye(120, dtype=np.float32)
    wanted = np.ones(120, dtype=bool)
    wanted[5] = False
    found = {}
    options = {"count": 2, "device": torch.device("cpu"), "tile_rows": 16, "held_pairs": 1}
    for pairs in candidates(rows, wanted, **options):
        assert len(pairs) < 4 * 120 * 2 + 16 * 120
        keep, distance = closest_pairs(rows, pairs, 2)
        assert (distance == 2).all()
        for row, other in pairs[keep].tolist():
            found.setdefault(row, []).append(other)
    assert found == {row: [other for other in range(4) if other != row][:2] for row in range(120) if row != 5}


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


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=20, deadline=None)
def test_a_row_of_zeros_is_at_a_right_angle_to_all_that_have_a_direction(seed: int) -> None:
    """Against cosines by numpy: 0 with every other row, 1 among rows of zeros; of equals the lowest index."""
    rng = np.random.default_rng(seed)
    rows = rng.integers(-2, 3, (rng.integers(2, 12), 3)).astype(np.float32)
    rows[rng.random(len(rows)) < 0.4] = 0
    zero = ~rows.any(axis=1)
    unit = rows / np.maximum(np.linalg.norm(rows.astype(np.float64), axis=1, keepdims=True), 1e-300)
    cosine = np.where(zero[:, None] & zero, 1.0, np.round(unit @ unit.T, 6))
    found = nearest_neighbours(rows, count=4)
    for row, near in enumerate(found):
        others = sorted((other for other in range(len(rows)) if other != row), key=lambda one: -cosine[row, one])
        there = near[near >= 0].tolist()
        assert [cosine[row, one] for one in there] == [cosine[row, one] for one in others[:4]]
        if zero[row]:
            assert there == others[:4]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([[1, 2], [np.nan, np.nan], [np.inf, 1]], "2 of 3 rows are NaN or infinite, the first at index 1"),
        ([1, 2], r"shape \(2,\)"),
    ],
)
def test_what_has_no_neighbour_is_refused(rows: list, message: str) -> None:
    with pytest.raises(UserError, match=message):
        nearest_neighbour(np.array(rows, dtype=np.float32))


class TestFaiss:
    """The same neighbours, whoever nominates: ties, duplicates, scales and clusters that float32 cannot tell apart."""

    @pytest.fixture(autouse=True)
    def installed(self) -> None:
        pytest.importorskip("faiss")

    @settings(max_examples=60)
    @given(rows=st.one_of(grid, wild), count=st.integers(1, 12))
    def test_equals_brute_force(self, rows: np.ndarray, count: int) -> None:
        with searching("faiss"):
            found = nearest_neighbours(rows, count=count, metric="l2")
        assert found.tolist() == [np.ravel(row).tolist() for row in brute_force(rows, "l2", count)]

    @pytest.mark.parametrize("metric", ["cosine", "l2"])
    @pytest.mark.parametrize("spread", [1e-6, 1e-3, 1.0])
    def test_tight_clusters_far_from_the_origin(self, metric: str, spread: float) -> None:
        rng = np.random.default_rng(0)
        centres = 50 + rng.normal(size=(5, 1, 24))
        rows = (centres + spread * rng.normal(size=(5, 30, 24))).reshape(-1, 24).astype(np.float32)
        rows[60] = rows[3]
        with searching("faiss"):
            found = nearest_neighbours(rows, count=7, metric=metric)
        assert found.tolist() == brute_force(rows, metric, 7)

    @pytest.mark.parametrize("count", [1, 6, 30])
    def test_equals_ours_where_norms_differ_by_orders_of_magnitude(self, count: int) -> None:
        rng = np.random.default_rng(count)
        rows = rng.normal(size=(400, 12)) * rng.lognormal(0, 3, (400, 1))
        rows[200:] = rows[:200] + 1e-5 * rng.normal(size=(200, 12))
        rows[17] = 1e9
        ours = nearest_neighbours(rows, count=count, metric="l2")
        with searching("faiss"):
            assert (nearest_neighbours(rows, count=count, metric="l2") == ours).all()

    def test_few_candidates_where_rows_are_told_apart_and_all_where_they_are_not(self) -> None:
        rows = np.random.default_rng(4).normal(size=(300, 16)).astype(np.float32)
        pairs = np.concatenate(list(faiss_candidates(rows, np.arange(300) % 2 == 0, count=2)))
        assert sorted(set(pairs[:, 0])) == list(range(0, 300, 2))
        assert 2 * 150 <= len(pairs) < 2 * 150 + 10
        alike = np.concatenate(list(faiss_candidates(np.eye(120, dtype=np.float32), np.ones(120, bool), count=2)))
        assert len(alike) == 120 * 119

    def test_it_is_used_within_the_context_alone(self, monkeypatch: pytest.MonkeyPatch) -> None:
        rows = np.random.default_rng(5).normal(size=(30, 4)).astype(np.float32)
        monkeypatch.setitem(sys.modules, "faiss", None)
        expected = nearest_neighbour(rows)
        with (
            pytest.raises(UserError, match=r"pip install 'hedgerow\[faiss\]'.*evaluate.search=ours"),
            searching("faiss"),
        ):
            nearest_neighbour(rows)
        assert (nearest_neighbour(rows) == expected).all()
