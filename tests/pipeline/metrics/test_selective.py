"""Selective prediction against averages over explicit orders, and AUGRC against its closed form in AUROC."""

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from sklearn.metrics import roc_auc_score

from pipeline.errors import UserError
from pipeline.metrics.selective import augrc, aurc, ausc, e_aurc, rejection_curve, sparsification_curve
from pipeline.metrics.undefined import Undefined


@st.composite
def judged_rows(draw: st.DrawFn, most: int = 40) -> tuple[np.ndarray, np.ndarray]:
    size = draw(st.integers(1, most))
    elements = st.one_of(st.integers(0, 3).map(float), st.floats(-1e3, 1e3))
    return draw(hnp.arrays(np.float64, size, elements=elements)), draw(hnp.arrays(bool, size))


def risks_of_order(wrong: np.ndarray) -> list[float]:
    return [float(np.mean(wrong[: i + 1])) for i in range(len(wrong))]


@given(judged_rows(most=6))
def test_aurc_is_the_mean_over_all_orders_of_ties(data: tuple[np.ndarray, np.ndarray]) -> None:
    uncertainty, wrong = data
    orders = [o for o in permutations(range(len(wrong))) if list(uncertainty[list(o)]) == sorted(uncertainty)]
    expected = np.mean([np.mean(risks_of_order(wrong[list(order)])) for order in orders])
    assert aurc(uncertainty, wrong) == pytest.approx(expected, abs=1e-9)


@given(judged_rows())
def test_augrc_equals_its_closed_form(data: tuple[np.ndarray, np.ndarray]) -> None:
    uncertainty, wrong = data
    rate = wrong.mean()
    ranked = 0.0 if wrong.all() or not wrong.any() else (1 - roc_auc_score(wrong, uncertainty)) * rate * (1 - rate)
    assert augrc(uncertainty, wrong) == pytest.approx(ranked + rate**2 / 2, abs=1e-9)


@given(judged_rows(), st.randoms(use_true_random=False))
def test_the_order_of_the_rows_does_not_matter(data: tuple[np.ndarray, np.ndarray], random: object) -> None:
    uncertainty, wrong = data
    order = list(range(len(wrong)))
    random.shuffle(order)  # type: ignore[attr-defined]
    for metric in (aurc, e_aurc, augrc):
        assert metric(uncertainty[order], wrong[order]) == pytest.approx(metric(uncertainty, wrong), abs=1e-12)


@given(judged_rows())
def test_e_aurc_is_zero_for_the_oracle_only_if_nothing_is_better(data: tuple[np.ndarray, np.ndarray]) -> None:
    uncertainty, wrong = data
    assert e_aurc(uncertainty, wrong) >= -1e-12
    assert e_aurc(wrong.astype(float), wrong) == pytest.approx(0, abs=1e-12)


@given(judged_rows())
def test_ausc_of_accuracy_is_one_minus_aurc(data: tuple[np.ndarray, np.ndarray]) -> None:
    uncertainty, wrong = data
    assert ausc(uncertainty, (~wrong).astype(float)) == pytest.approx(1 - aurc(uncertainty, wrong), abs=1e-12)


def test_sparsification_by_hand() -> None:
    value = np.array([0.5, 1.0, 0.0])
    assert sparsification_curve(np.array([2.0, 1, 3]), value).tolist() == [1, 0.75, 0.5]
    assert sparsification_curve(np.array([1.0, 1, 3]), value).tolist() == [0.75, 0.75, 0.5]
    assert ausc(np.array([2.0, 1, 3]), value) == 0.75
    assert isinstance(ausc(np.zeros(0), np.zeros(0)), Undefined)
    with pytest.raises(UserError, match="value: 1 of 2 rows are NaN"):
        ausc(np.zeros(2), np.array([np.nan, 1]))


def test_by_hand() -> None:
    """Most certain first: right, wrong, right, wrong. Risks 0, 1/2, 1/3, 1/2; the best order's 0, 0, 1/3, 1/2."""
    uncertainty, wrong = np.array([0.1, 0.4, 0.2, 0.3]), np.array([False, True, True, False])
    assert aurc(uncertainty, wrong) == pytest.approx((0 + 1 / 2 + 1 / 3 + 1 / 2) / 4, abs=1e-12)
    assert e_aurc(uncertainty, wrong) == pytest.approx((1 / 2) / 4, abs=1e-12)
    curve = rejection_curve(uncertainty, wrong, points=4)
    assert curve.rejected_P.tolist() == [0, 0.25, 0.5, 0.75]
    assert curve.accuracy_P.tolist() == pytest.approx([1 / 2, 2 / 3, 1 / 2, 1], abs=1e-12)


def test_constant_uncertainty_is_worth_the_error_rate() -> None:
    wrong = np.array([True, False, False, True, False])
    assert aurc(np.zeros(5), wrong) == pytest.approx(0.4, abs=1e-12)
    assert rejection_curve(np.zeros(5), wrong).accuracy_P.tolist() == pytest.approx([0.6] * 5, abs=1e-12)


@given(judged_rows())
def test_curve_starts_at_the_accuracy_and_keeps_a_row(data: tuple[np.ndarray, np.ndarray]) -> None:
    curve = rejection_curve(*data)
    assert curve.rejected_P[0] == 0
    assert curve.accuracy_P[0] == pytest.approx(1 - data[1].mean(), abs=1e-12)
    assert (np.diff(curve.rejected_P) > 0).all()
    assert curve.rejected_P[-1] < 1
    assert ((curve.accuracy_P >= -1e-12) & (curve.accuracy_P <= 1 + 1e-12)).all()


def test_nothing_and_nan() -> None:
    none = np.zeros(0), np.zeros(0, dtype=bool)
    for metric in (aurc, e_aurc, augrc):
        assert isinstance(metric(*none), Undefined)
        with pytest.raises(UserError, match="1 of 2 rows are NaN, the first at index 0"):
            metric(np.array([np.nan, 1]), np.array([True, False]))
        with pytest.raises(UserError, match="uncertainty 1, wrong 2"):
            metric(np.zeros(1), np.zeros(2, dtype=bool))
    assert len(rejection_curve(*none).rejected_P) == 0
