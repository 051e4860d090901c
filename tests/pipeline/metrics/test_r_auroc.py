"""AUROC equals scikit-learn's and a loop over pairs, to 1e-9."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from sklearn.metrics import roc_auc_score

from pipeline.errors import UserError
from pipeline.metrics.r_auroc import auroc, r_auroc
from pipeline.metrics.retrieval import judge
from pipeline.metrics.undefined import Undefined

scores = st.one_of(st.integers(-2, 2).map(float), st.floats(-1e6, 1e6), st.just(0.25))


@st.composite
def scored_rows(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    size = draw(st.integers(0, 40))
    return draw(hnp.arrays(np.float64, size, elements=scores)), draw(hnp.arrays(bool, size))


@given(scored_rows())
def test_equals_scikit_learn_and_all_pairs(data: tuple[np.ndarray, np.ndarray]) -> None:
    score, positive = data
    found = auroc(score, positive)
    if positive.all() or not positive.any():
        assert isinstance(found, Undefined)
        assert found.reason == f"needs both kinds of rows: {positive.sum()} positive, {(~positive).sum()} negative"
        return
    pairs = [(p > n) + (p == n) / 2 for p in score[positive] for n in score[~positive]]
    assert found == pytest.approx(roc_auc_score(positive, score), abs=1e-9)
    assert found == pytest.approx(np.mean(pairs), abs=1e-9)


def test_large_and_float32_scores_are_not_squashed() -> None:
    """A hidden sigmoid would make all of these equal: 0.5."""
    score = np.array([100, 200, 300, 400], dtype=np.float32)
    assert auroc(score, np.array([False, False, True, True])) == 1.0


def test_infinite_scores_have_their_place() -> None:
    assert auroc(np.array([-np.inf, 0, np.inf]), np.array([False, False, True])) == 1.0


def test_constant_scores_know_nothing() -> None:
    assert auroc(np.full(7, 3.0), np.arange(7) < 3) == 0.5


def test_nan_is_refused_with_its_place() -> None:
    with pytest.raises(UserError, match="score: 2 of 4 rows are NaN, the first at index 1"):
        auroc(np.array([0, np.nan, 1, np.nan]), np.array([True, False, True, False]))


def test_r_auroc_by_hand() -> None:
    """Rows 0–4 of class 0 and 1, row 5 lone, row 6 unlabelled; wrong: 1 and 4.

    Pairs (wrong, right): (.9; .1 .5 .9) → 1, 1, ½; (.5; .1 .5 .9) → 1, ½, 0; sum 4 of 6.
    """
    retrieval = judge(np.array([0, 0, 0, 1, 1, 2, -1]), np.array([1, 3, 0, 4, 0, 0, -1]))
    assert retrieval.correct_N.tolist() == [True, False, True, True, False, False, False]
    uncertainty = np.array([0.1, 0.9, 0.5, 0.9, 0.5, 50.0, -50.0])
    assert r_auroc(uncertainty, retrieval) == pytest.approx(4 / 6, abs=1e-12)


def test_r_auroc_of_flawless_retrieval_is_undefined() -> None:
    found = r_auroc(np.array([0.3, 0.1]), judge(np.array([0, 0]), np.array([1, 0])))
    assert found == Undefined("needs right and wrong neighbours: 2 right, 0 wrong")


def test_r_auroc_refuses_nan_even_in_rows_that_do_not_count() -> None:
    retrieval = judge(np.array([0, 0, 5]), np.array([1, 2, 0]))
    with pytest.raises(UserError, match="uncertainty: 1 of 3 rows are NaN, the first at index 2"):
        r_auroc(np.array([0.3, 0.1, np.nan]), retrieval)
