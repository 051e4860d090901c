"""R@k, mAP@k and k-NN accuracy against loops over all distances, and by hand."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from pipeline.errors import UserError
from pipeline.metrics.ranked import Ranked, rank
from pipeline.metrics.retrieval import retrieve
from pipeline.metrics.undefined import Undefined


@st.composite
def labelled_rows(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    size = draw(st.integers(0, 20))
    rows = draw(hnp.arrays(np.float32, (size, 3), elements=st.integers(-2, 2).map(float)))
    return rows, draw(hnp.arrays(np.int64, size, elements=st.integers(-1, 3)))


def by_loops(rows: np.ndarray, label: np.ndarray, k: int) -> dict[str, object]:
    """Every number from sorted distances of one query after the other."""
    hits, precisions, votes = [], [], []
    for query in np.flatnonzero(label >= 0):
        others = [other for other in np.flatnonzero(label >= 0) if other != query]
        relevant = sum(label[other] == label[query] for other in others)
        if not relevant:
            continue
        others.sort(key=lambda other: (np.sum((rows[other].astype(float) - rows[query]) ** 2), other))
        near = [label[other] for other in others[:k]]
        hits.append(label[query] in near)
        right = [place for place, one in enumerate(near, start=1) if one == label[query]]
        precisions.append(sum((i + 1) / place for i, place in enumerate(right)) / min(k, relevant))
        most = max(Counter(near).values())
        votes.append(next(one for one in near if near.count(one) == most) == label[query])
    return {name: np.mean(v) if v else None for name, v in (("r", hits), ("map", precisions), ("knn", votes))}


@given(labelled_rows(), st.integers(1, 6))
def test_all_equal_loops(data: tuple[np.ndarray, np.ndarray], k: int) -> None:
    rows, label = data
    ranked, expected = rank(rows, label, count=6, metric="l2"), by_loops(rows, label, k)
    found = {"r": ranked.recall_at(k), "map": ranked.mean_average_precision_at(k), "knn": ranked.knn_accuracy(k)}
    for name, value in expected.items():
        assert isinstance(found[name], Undefined) if value is None else found[name] == pytest.approx(value, abs=1e-12)


@given(labelled_rows())
def test_the_first_of_them_is_what_retrieve_finds(data: tuple[np.ndarray, np.ndarray]) -> None:
    rows, label = data
    one, ranked = retrieve(rows, label, metric="l2"), rank(rows, label, count=3, metric="l2")
    np.testing.assert_array_equal(one.neighbour_N, ranked.neighbour_NC[:, 0])
    np.testing.assert_array_equal(one.counted_N, ranked.counted_N)
    if one.counted:
        assert ranked.recall_at(1) == one.recall_at_1
    assert ranked.mean_average_precision_at(1) == ranked.recall_at(1)


def test_by_hand() -> None:
    rows = np.array([[0.0], [1], [2], [10], [11.5]])
    ranked = rank(rows, np.array([0, 1, 0, 1, 2]), count=3, metric="l2")
    assert ranked.neighbour_NC.tolist() == [[1, 2, 3], [0, 2, 3], [1, 0, 3], [4, 2, 1], [3, 2, 1]]
    assert ranked.average_precision_at(3).tolist() == pytest.approx([1 / 2, 1 / 3, 1 / 2, 1 / 3, 0])
    assert ranked.counted_N.tolist() == [True] * 4 + [False]
    assert ranked.recall_at(2) == 2 / 4


def test_any_relation_can_be_relevance() -> None:
    """Places on a line: within 25 m is relevant."""
    place = np.array([0.0, 20, 40, 200])
    near = np.array([[1, 2], [0, 2], [1, 0], [2, 1]])
    relevant = np.abs(place[near] - place[:, None]) <= 25
    ranked = Ranked(neighbour_NC=near, relevant_NC=relevant, relevant_N=np.array([1, 2, 1, 0]), label_N=np.full(4, -1))
    assert ranked.recall_at(1) == 1
    assert ranked.mean_average_precision_at(2) == 1
    assert rank(place[:, None], np.zeros(4, dtype=int), count=2, metric="l2").neighbour_NC.tolist() == near.tolist()


def test_more_neighbours_than_are_known_are_refused() -> None:
    ranked = rank(np.eye(4), np.array([0, 0, 1, 1]), count=2)
    with pytest.raises(UserError, match="3 neighbours are asked for, 2 are known"):
        ranked.recall_at(3)
