import pytest

from pipeline.errors import UserError
from pipeline.metrics.aggregate import Aggregate, over_seeds
from pipeline.metrics.undefined import Undefined


def test_median_and_the_larger_distance() -> None:
    assert over_seeds([0.5, 0.9, 0.6]) == Aggregate(values=(0.5, 0.9, 0.6), median=0.6, distance=pytest.approx(0.3))
    assert over_seeds([0.2, 0.9, 0.8]) == Aggregate(values=(0.2, 0.9, 0.8), median=0.8, distance=pytest.approx(0.6))


def test_even_number_of_seeds() -> None:
    found = over_seeds([0.0, 1.0, 0.4, 0.2])
    assert isinstance(found, Aggregate)
    assert (found.median, found.distance) == (pytest.approx(0.3), pytest.approx(0.7))


def test_one_seed_has_no_spread() -> None:
    assert over_seeds([0.7]) == Aggregate(values=(0.7,), median=0.7, distance=0.0)


def test_one_undefined_seed_is_not_hidden() -> None:
    assert over_seeds([Undefined("one class")]) == Undefined("one class")
    assert over_seeds([0.7, Undefined("one class"), 0.8]) == Undefined("1 of 3 seeds: one class")


def test_no_seed_is_refused() -> None:
    with pytest.raises(UserError, match="one seed at least"):
        over_seeds([])
