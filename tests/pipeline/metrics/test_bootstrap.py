"""Intervals that hold what they promise, and pair what they compare."""

import numpy as np
import pytest

from pipeline.errors import UserError
from pipeline.metrics.bootstrap import Interval, bootstrap_difference
from pipeline.metrics.undefined import Undefined


def mean_of(values: np.ndarray):
    return lambda rows: float(values[rows].mean())


def test_the_interval_of_a_mean_is_that_of_theory() -> None:
    values = np.random.default_rng(0).normal(2, 3, size=400)
    found = bootstrap_difference(mean_of(values), mean_of(np.zeros(400)), 400, draws=4000)
    assert isinstance(found, Interval)
    error = values.std(ddof=1) / 20
    assert found.value == pytest.approx(values.mean())
    assert found.low == pytest.approx(values.mean() - 1.96 * error, abs=0.1 * error)
    assert found.high == pytest.approx(values.mean() + 1.96 * error, abs=0.1 * error)


def test_it_covers_the_truth_about_as_often_as_it_says() -> None:
    rng, inside = np.random.default_rng(1), 0
    for _ in range(200):
        values = rng.normal(size=60)
        found = bootstrap_difference(mean_of(values), mean_of(np.zeros(60)), 60, draws=200, level=0.8)
        inside += found.low <= 0 <= found.high
    assert 140 <= inside <= 180  # 160 expected, standard deviation 5.7; small samples cover a little less


def test_what_both_share_drops_out() -> None:
    """Rows that are hard for both scores: each score varies, their difference does not."""
    shared = np.random.default_rng(2).normal(0, 100, size=50)
    found = bootstrap_difference(mean_of(shared + 1), mean_of(shared), 50)
    assert found.low == pytest.approx(1)
    assert found.high == pytest.approx(1)


def test_the_same_seed_gives_the_same_interval_and_undefined_resamples_are_counted() -> None:
    values = np.array([1.0] + [0.0] * 9)

    def only_with_the_first(rows: np.ndarray):
        return float(values[rows].mean()) if (rows == 0).any() else Undefined("the first is not there")

    found = [bootstrap_difference(only_with_the_first, mean_of(values * 0), 10, seed=3) for _ in range(2)]
    assert found[0] == found[1]
    assert found[0].left_out == pytest.approx(1000 * 0.9**10, rel=0.25)
    assert bootstrap_difference(lambda rows: Undefined("no"), mean_of(values), 10) == Undefined("no")
    with pytest.raises(UserError, match="level"):
        bootstrap_difference(mean_of(values), mean_of(values), 10, level=1)
