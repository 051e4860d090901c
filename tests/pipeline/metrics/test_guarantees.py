"""Thresholds and sets keep what they promise on rows that they were not set on."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import binomtest

from pipeline.held_out import held_out
from pipeline.metrics.guarantees import (
    calibration_half,
    conformal_rank,
    error_interval,
    guaranteed_threshold,
    upper_limit,
)


def test_the_half_is_a_matter_of_the_key_alone_and_of_no_other_choice() -> None:
    keys = [f"image/{row}" for row in range(4000)]
    half = calibration_half(keys)
    assert abs(half.mean() - 0.5) < 0.03
    assert calibration_half(keys[7:9]).tolist() == half[7:9].tolist()
    assert abs(held_out(np.array(keys, dtype="S"), 0.5)[half].mean() - 0.5) < 0.04
    assert len(calibration_half([])) == 0


@pytest.mark.parametrize(("errors", "count"), [(0, 1), (1, 1), (0, 20), (3, 20), (20, 20), (7, 400)])
def test_the_interval_is_scipy_s_exact_one(errors: int, count: int) -> None:
    expected = binomtest(errors, count).proportion_ci(0.95, method="exact")
    assert error_interval(errors, count) == pytest.approx((expected.low, expected.high), abs=1e-9)


def test_the_threshold_keeps_as_many_as_the_bound_allows() -> None:
    """Also where the error does not fall steadily: the most certain rows of all are wrong here."""
    uncertainty = np.arange(400.0)
    wrong = (uncertainty < 4) | (uncertainty >= 300)
    found = guaranteed_threshold(uncertainty, wrong, target=0.06, risk=0.1)
    bounds = {kept: upper_limit(int(wrong[:kept].sum()), kept, 0.1 / 20) for kept in range(20, 401, 20)}
    best = max(kept for kept, bound in bounds.items() if bound <= 0.06)
    assert bounds[20] > 0.06
    assert (found.uncertainty, found.bound) == (best - 1, pytest.approx(bounds[best]))


def test_rows_that_are_equally_uncertain_are_kept_or_rejected_together() -> None:
    uncertainty = np.repeat([0.0, 1.0, 2.0], 100)
    wrong = np.repeat([False, False, True], 100)
    assert guaranteed_threshold(uncertainty, wrong, target=0.05, risk=0.05).uncertainty == 1
    assert guaranteed_threshold(uncertainty, ~wrong, target=0.05, risk=0.05).uncertainty == -math.inf
    assert guaranteed_threshold(uncertainty[:0], wrong[:0], target=0.05, risk=0.05).uncertainty == -math.inf


def test_the_error_of_new_rows_exceeds_the_target_as_rarely_as_promised() -> None:
    rng = np.random.default_rng(0)
    exceeded = 0
    for _ in range(200):
        uncertainty = rng.random(300)
        limit = guaranteed_threshold(uncertainty, rng.random(300) < uncertainty, target=0.3, risk=0.1).uncertainty
        exceeded += limit / 2 > 0.3  # the error of all rows below a limit is half of it
    assert exceeded <= 0.1 * 200


def test_conformal_ranks_by_their_definition_and_their_coverage() -> None:
    assert conformal_rank(np.array([3, 1, 2, 5]), 0.2) == 5  # ⌈5 · 0.8⌉ = 4th smallest
    assert conformal_rank(np.array([3, 1, 2, 5]), 0.4) == 3
    assert conformal_rank(np.array([3, 1, 2, 0]), 0.2) == math.inf  # the fourth is beyond all known
    assert conformal_rank(np.array([3, 1, 2, 5]), 0.1) == math.inf  # four rows are too few
    assert conformal_rank(np.array([], dtype=int), 0.1) == math.inf
    rng = np.random.default_rng(1)
    covered = [rng.geometric(0.3) <= conformal_rank(rng.geometric(0.3, 60), 0.1) for _ in range(1000)]
    assert np.mean(covered) >= 0.9 - 3 * math.sqrt(0.09 / 1000)
