"""Intervals that hold what they promise, and pair what they compare."""

import numpy as np
import pytest

from pipeline.errors import UserError
from pipeline.metrics.bootstrap import Interval, bootstrap, bootstrap_all, median_difference, remembered
from pipeline.metrics.undefined import Undefined


def mean_of(values: np.ndarray):
    return lambda rows: float(values[rows].mean())


def test_the_interval_of_a_mean_is_that_of_theory() -> None:
    values = np.random.default_rng(0).normal(2, 3, size=400)
    found = bootstrap(mean_of(values), 400, draws=4000)
    assert isinstance(found, Interval)
    error = values.std(ddof=1) / 20
    assert found.value == pytest.approx(values.mean())
    assert found.low == pytest.approx(values.mean() - 1.96 * error, abs=0.1 * error)
    assert found.high == pytest.approx(values.mean() + 1.96 * error, abs=0.1 * error)


def test_it_covers_the_truth_about_as_often_as_it_says() -> None:
    rng, inside = np.random.default_rng(1), 0
    for _ in range(200):
        values = rng.normal(size=60)
        found = bootstrap(mean_of(values), 60, draws=200, level=0.8)
        inside += found.low <= 0 <= found.high
    assert 140 <= inside <= 180  # 160 expected, standard deviation 5.7; small samples cover a little less


def test_what_both_share_drops_out() -> None:
    """Rows that are hard for both scores: each score varies, their difference does not."""
    shared = np.random.default_rng(2).normal(0, 100, size=50)
    found = bootstrap(median_difference([(mean_of(shared + 1), mean_of(shared))]), 50)
    assert found.low == pytest.approx(1)
    assert found.high == pytest.approx(1)


def test_the_same_seed_gives_the_same_interval_and_undefined_resamples_are_counted() -> None:
    values = np.array([1.0] + [0.0] * 9)

    def only_with_the_first(rows: np.ndarray):
        return float(values[rows].mean()) if (rows == 0).any() else Undefined("the first is not there")

    found = [bootstrap(only_with_the_first, 10, seed=3) for _ in range(2)]
    assert found[0] == found[1]
    assert found[0].left_out == pytest.approx(1000 * 0.9**10, rel=0.25)
    assert bootstrap(lambda rows: Undefined("no"), 10) == Undefined("no")
    with pytest.raises(UserError, match="level"):
        bootstrap(mean_of(values), 10, level=1)


def test_the_median_of_seeds_is_taken_on_each_resample_and_each_metric_is_asked_once() -> None:
    rng, asked = np.random.default_rng(4), []
    one, other = rng.normal(size=(3, 30)), rng.normal(size=30)

    def entropy(rows: np.ndarray) -> float:
        asked.append(rows)
        return float(other[rows].mean())

    metric = median_difference([(mean_of(seed), entropy) for seed in one])
    rows = rng.integers(0, 30, 30)
    assert metric(rows) == pytest.approx(np.median(one[:, rows].mean(axis=1) - other[rows].mean()))
    assert len(asked) == 1
    assert median_difference([(entropy, entropy), (entropy, lambda rows: Undefined("gone"))])(rows) == Undefined("gone")


def test_what_several_metrics_share_is_computed_once_a_resample_and_each_has_the_interval_it_has_alone() -> None:
    rng, asked = np.random.default_rng(5), []
    ones, other = rng.normal(size=(4, 30)), rng.normal(size=30)

    def entropy(rows: np.ndarray) -> float:
        asked.append(rows)
        return float(other[rows].mean())

    def never(rows: np.ndarray) -> Undefined:
        return Undefined("never")

    alone = [bootstrap(median_difference([(mean_of(one), entropy)]), 30, draws=50) for one in ones]
    assert len(asked) == 4 * 51
    asked.clear()
    shared = remembered(entropy)
    together = [median_difference([(mean_of(one), shared)]) for one in ones]
    found = bootstrap_all([together[0], never, *together[1:]], 30, draws=50)
    assert len(asked) == 51
    assert found == [alone[0], Undefined("never"), *alone[1:]]
    assert bootstrap_all([], 30) == []
