"""The measures by hand, and that a window as large as the store mixes as well as a permutation does."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.shuffle_quality import chi_square, compare, effective


def test_measures_by_hand():
    assert effective(np.array([0, 0, 1, 1]), 5) == 2
    assert effective(np.array([3, 3, 3]), 5) == 1
    assert chi_square(np.array([0, 1, 0, 1]), np.array([0.5, 0.5])) == 0
    assert chi_square(np.array([0, 0, 0, 0]), np.array([0.5, 0.5])) == 4


def test_mixing_grows_with_the_window_up_to_that_of_a_permutation():
    found = compare(units=40, rows=256, chunk=64, classes=20, batch=256, windows=(256, 1024, 10_240))
    truth = found.pop("permutation")
    small, middle, whole = found.values()
    assert small["units"] < middle["units"] < whole["units"]
    assert small["sorted"] > middle["sorted"] > 2 * whole["sorted"]
    assert whole["units"] == pytest.approx(truth["units"], rel=0.05)
    for name in ("spread", "sorted"):
        assert truth[name] == pytest.approx(1 - 256 / 10_240, abs=0.25)
        assert whole[name] == pytest.approx(truth[name], abs=0.25)
    assert small["spread"] == pytest.approx(1, abs=0.25)  # classes that lie mixed need no window
