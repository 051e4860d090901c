"""R@1 against a loop, and what is not counted."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from sklearn.neighbors import NearestNeighbors

from pipeline.errors import UserError
from pipeline.metrics.retrieval import retrieve
from pipeline.metrics.undefined import Undefined


@st.composite
def labelled_rows(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    size = draw(st.integers(0, 20))
    rows = draw(hnp.arrays(np.float32, (size, 3), elements=st.integers(-2, 2).map(float)))
    labels = draw(hnp.arrays(np.int32, size, elements=st.integers(-1, 4)))
    return rows, labels


@given(labelled_rows())
def test_equals_a_loop(data: tuple[np.ndarray, np.ndarray]) -> None:
    rows, labels = data
    right = counted = lone = 0
    for i, label in enumerate(labels):
        others = [j for j in range(len(labels)) if j != i and labels[j] >= 0]
        if label < 0:
            continue
        if label not in labels[others]:
            lone += 1
            continue
        nearest = min(others, key=lambda j: (float(((rows[i].astype(float) - rows[j]) ** 2).sum()), j))
        counted += 1
        right += labels[nearest] == label
    result = retrieve(rows, labels, metric="l2")
    assert (result.counted, result.lone, result.unlabelled) == (counted, lone, int((labels < 0).sum()))
    assert result.counted + result.lone + result.unlabelled == len(labels)
    if counted:
        assert result.recall_at_1 == pytest.approx(right / counted, abs=1e-12)
    else:
        assert isinstance(result.recall_at_1, Undefined)


def test_equals_scikit_learn_where_nothing_is_tied() -> None:
    rng = np.random.default_rng(0)
    rows, labels = rng.normal(size=(300, 16)).astype(np.float32), rng.integers(0, 6, 300)
    finder = NearestNeighbors(n_neighbors=2, metric="cosine", algorithm="brute").fit(rows.astype(np.float64))
    nearest = finder.kneighbors(return_distance=False)[:, 0]  # without a query, scikit-learn leaves self out
    result = retrieve(rows, labels)
    assert (result.neighbour_N == nearest).all()
    assert result.recall_at_1 == pytest.approx((labels[nearest] == labels).mean(), abs=1e-12)


def test_lone_rows_are_not_judged_but_mislead() -> None:
    rows = np.array([[0.0, 0], [1, 0], [1.2, 0], [9, 0]])
    result = retrieve(rows, np.array([0, 0, 7, -1]), metric="l2")
    assert result.neighbour_N.tolist() == [1, 2, 1, -1]
    assert result.correct_N.tolist() == [True, False, False, False]
    assert result.counted_N.tolist() == [True, True, False, False]
    assert result.recall_at_1 == 0.5


def test_an_unlabelled_row_is_no_neighbour() -> None:
    rows = np.array([[0.0, 0], [0.1, 0], [1, 0]])
    assert retrieve(rows, np.array([0, -1, 0]), metric="l2").neighbour_N.tolist() == [2, -1, 0]


def test_a_duplicate_is_a_neighbour_not_self() -> None:
    """Dropping "column 0 of the top-k" would give row 1 itself and call it right."""
    rows = np.array([[1.0, 0], [1, 0], [0, 1], [0.1, 1]])
    result = retrieve(rows, np.array([0, 1, 0, 1]))
    assert result.neighbour_N.tolist() == [1, 0, 3, 2]
    assert result.recall_at_1 == 0.0


@pytest.mark.parametrize("labels", [[], [0], [0, 1, 2], [-1, -1]])
def test_nobody_to_judge_is_undefined_with_a_reason(labels: list[int]) -> None:
    rows = np.random.default_rng(0).normal(size=(len(labels), 2))
    result = retrieve(rows, np.array(labels, dtype=np.int32))
    assert isinstance(result.recall_at_1, Undefined)
    assert f"{result.lone} lone, {result.unlabelled} unlabelled" in result.recall_at_1.reason


def test_lengths_must_agree() -> None:
    with pytest.raises(UserError, match="embedding 3, label 2"):
        retrieve(np.ones((3, 2)), np.array([0, 0]))
