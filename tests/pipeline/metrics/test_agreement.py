"""Rank correlations against SciPy, entropies and shares by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.stats import entropy, spearmanr

from pipeline.errors import UserError
from pipeline.metrics.agreement import agreement, annotator_entropy, rank_correlation, response, share_higher
from pipeline.metrics.undefined import Undefined

pairs = hnp.arrays(np.float64, st.tuples(st.just(2), st.integers(2, 30)), elements=st.integers(-3, 3).map(float))


@given(pairs)
def test_rank_correlation_equals_scipy(pair: np.ndarray) -> None:
    found = rank_correlation(*pair)
    if (pair == pair[:, :1]).all(axis=1).any():
        assert found == Undefined("one of the two is the same for all rows")
    else:
        assert found == pytest.approx(spearmanr(*pair).statistic, abs=1e-9)


def test_agreement_is_symmetric_and_one_with_itself() -> None:
    rng = np.random.default_rng(0)
    scores = {name: rng.normal(size=50) for name in "abc"}
    found = agreement(scores)
    for one in scores:
        assert found[one][one] == pytest.approx(1)
        for other in scores:
            assert found[one][other] == pytest.approx(found[other][one])
    assert agreement({"a": scores["a"], "-a": -scores["a"]})["a"]["-a"] == pytest.approx(-1)


@given(hnp.arrays(np.int64, (5, 4), elements=st.integers(1, 9)))
def test_annotator_entropy_equals_scipy(votes: np.ndarray) -> None:
    np.testing.assert_allclose(annotator_entropy(votes), entropy(votes, axis=1), atol=1e-12)


def test_annotators_who_agree_have_no_entropy_and_those_who_say_nothing_are_refused() -> None:
    assert annotator_entropy(np.array([[0, 7, 0], [1, 1, 0]])).tolist() == pytest.approx([0, np.log(2)])
    with pytest.raises(UserError, match="votes: 1 rows have none, or negative ones; the first is 1"):
        annotator_entropy(np.array([[1, 0], [0, 0]]))


def test_shares_and_responses_by_hand() -> None:
    assert share_higher(np.array([2.0, 1, 1, 0]), np.array([1.0, 1, 1, 1])) == 0.5
    assert isinstance(share_higher(np.zeros(0), np.zeros(0)), Undefined)
    up = response([np.array([1.0, 2, 9]), np.array([2.0, 3, 4]), np.array([3.0, 3, 3])])
    assert (up.median_K.tolist(), up.rises, up.falls_at) == ([2, 3, 3], True, None)
    down = response([np.array([1.0]), np.array([3.0]), np.array([2.0])])
    assert (down.rises, down.falls_at) == (False, 2)
    flat = response([np.array([1.0]), np.array([1.0])])
    assert (flat.rises, flat.falls_at) == (False, None)
    with pytest.raises(UserError, match="at least one strength"):
        response([])
