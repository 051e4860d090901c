"""Reliability and calibration errors against loops over bins, and by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from pipeline.errors import UserError
from pipeline.metrics.calibration import consensus, reliability, retrieval_reliability
from pipeline.metrics.undefined import Undefined


@st.composite
def confident_rows(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    size = draw(st.integers(1, 40))
    confidence = hnp.arrays(
        np.float64, size, elements=st.one_of(st.sampled_from([0.0, 0.1, 0.5, 1.0]), st.floats(0, 1))
    )
    return draw(confidence), draw(hnp.arrays(bool, size))


@given(confident_rows(), st.sampled_from([1, 2, 4, 8, 16]))
def test_ece_is_the_sum_over_bins(data: tuple[np.ndarray, np.ndarray], bins: int) -> None:
    confidence, right = data
    expected, rows = 0.0, 0
    for b in range(bins):
        inside = (confidence > b / bins) & (confidence <= (b + 1) / bins) | ((b == 0) & (confidence == 0))
        rows += int(inside.sum())
        if inside.any():
            expected += inside.mean() * abs(right[inside].mean() - confidence[inside].mean())
    assert rows == len(confidence)
    assert reliability(confidence, right, bins=bins).error == pytest.approx(expected, abs=1e-12)


def test_a_confidence_of_one_is_not_dropped() -> None:
    assert reliability(np.ones(4), np.array([True, False, False, False])).error == 0.75
    assert reliability(np.zeros(4), np.array([True, False, False, False])).error == 0.25


def test_one_that_tells_the_truth_is_calibrated() -> None:
    rng = np.random.default_rng(0)
    confidence = rng.uniform(size=200_000)
    right = rng.uniform(size=200_000) < confidence
    assert reliability(confidence, right).error < 0.005
    assert reliability(confidence, ~right).error > 0.3


def test_retrieval_reliability_is_that_of_percentiles() -> None:
    uncertainty = np.array([3.0, 1.0, 2.0, 4.0, 5.0, 6.0, 8.0, 7.0, 9.0, 10.0])
    found = retrieval_reliability(uncertainty, np.linspace(0, 1, 10), bins=5)
    assert found.count_B.tolist() == [2] * 5
    assert found.confidence_B.tolist() == pytest.approx([0.1, 0.3, 0.5, 0.7, 0.9])
    least_certain = np.linspace(0, 1, 10)[[9, 8]].mean()
    assert found.outcome_B[0] == pytest.approx(least_certain)
    assert retrieval_reliability(np.zeros(4), np.ones(4)).confidence_B.tolist() == [0.5]


@given(hnp.arrays(np.int64, st.tuples(st.integers(1, 7), st.integers(0, 5)), elements=st.integers(0, 3)))
def test_consensus_is_the_lowest_most_frequent_class_and_its_share(prediction: np.ndarray) -> None:
    mode, share = consensus(prediction)
    for row, samples in enumerate(prediction.T.tolist()):
        most = max(samples.count(one) for one in samples)
        assert mode[row] == min(one for one in samples if samples.count(one) == most)
        assert share[row] == most / len(samples)


def test_nothing_and_nonsense() -> None:
    assert isinstance(reliability(np.zeros(0), np.zeros(0)).error, Undefined)
    with pytest.raises(UserError, match=r"confidence: must be in \[0, 1\], it goes from 0.5 to 1.5"):
        reliability(np.array([0.5, 1.5]), np.array([True, True]))
    with pytest.raises(UserError, match="confidence: 1 of 2 rows are NaN"):
        reliability(np.array([0.5, np.nan]), np.array([True, True]))
    with pytest.raises(UserError, match="different lengths"):
        reliability(np.array([0.5]), np.array([True, True]))
    with pytest.raises(UserError, match="at least one sample"):
        consensus(np.zeros((0, 3), dtype=int))
