"""Selective prediction: reject the least certain rows first, look at the errors among those kept.

- Risk at coverage i/n: share of errors among the i most certain rows.
- AURC: mean risk over the coverages 1/n … n/n (Geifman et al., *Bias-reduced uncertainty estimation*, ICLR 2019).
- E-AURC: AURC less that of the best order of the same errors (ibid.; taken exactly, not by their approximation).
- AUGRC: area under (errors kept)/n against coverage, by trapezoids (Traub et al., *Overcoming common flaws in the
  evaluation of selective classification systems*, NeurIPS 2024); with error rate e it is
  (1 − AUROC) · e(1 − e) + e²/2.

- Sparsification curve: mean of a value (AP@1, accuracy) of the rows kept; AUSC: its mean over the coverages 1/n … n/n
  (Warburg et al., *Bayesian metric learning*, App. G.3). Of accuracy it is 1 − AURC.

Rows of equal uncertainty have no order among themselves, so a group of them counts with its expected errors under a
random order: every number is the same for any order of the rows.

Shape suffixes: N rows, P points of a curve.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipeline.metrics.checks import refuse_nan, same_length
from pipeline.metrics.undefined import Score, Undefined

NOTHING = Undefined("no row to select from")


@dataclass(frozen=True, kw_only=True)
class RejectionCurve:
    """Accuracy of the rows kept against the share rejected; ``rejected_P`` ascends from 0, both in [0, 1]."""

    rejected_P: NDArray[np.float64]
    accuracy_P: NDArray[np.float64]


def _errors_kept(uncertainty_N: NDArray[np.floating], wrong_N: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Expected errors among the 1 … N most certain rows."""
    same_length(uncertainty=uncertainty_N, wrong=wrong_N)
    return _sum_kept(uncertainty_N, wrong_N)


def _sum_kept(uncertainty_N: NDArray[np.floating], value_N: NDArray[np.generic]) -> NDArray[np.float64]:
    """Expected sum of a value over the 1 … N most certain rows."""
    refuse_nan(uncertainty_N, "uncertainty")
    _, group_N, size_G = np.unique(uncertainty_N, return_inverse=True, return_counts=True)
    sum_G = np.bincount(group_N, weights=value_N, minlength=len(size_G))
    end_G = np.concatenate([[0], np.cumsum(size_G)])
    kept_N = np.arange(1, len(value_N) + 1)
    return np.interp(kept_N, end_G, np.concatenate([[0.0], np.cumsum(sum_G)]))


def sparsification_curve(uncertainty_N: NDArray[np.floating], value_N: NDArray[np.floating]) -> NDArray[np.float64]:
    """Mean value of the 1 … N most certain rows, (N,): right to left, the least certain one is removed at each step.

    Args:
        uncertainty_N: (N,) floats, higher = less sure.
        value_N: (N,) how well each row does, e.g. AP@1; finite.

    Raises:
        UserError: NaN, or lengths differ.
    """
    rows = same_length(uncertainty=uncertainty_N, value=value_N)
    refuse_nan(np.asarray(value_N, dtype=np.float64), "value")
    return _sum_kept(uncertainty_N, value_N) / np.arange(1, rows + 1)


def ausc(uncertainty_N: NDArray[np.floating], value_N: NDArray[np.floating]) -> Score:
    """Area under :func:`sparsification_curve`, higher is better; errors are those of the curve."""
    curve_N = sparsification_curve(uncertainty_N, value_N)
    return float(curve_N.mean()) if len(curve_N) else NOTHING


def aurc(uncertainty_N: NDArray[np.floating], wrong_N: NDArray[np.bool_]) -> Score:
    """Area under the risk-coverage curve, in [0, 1], lower is better.

    Args:
        uncertainty_N: (N,) floats, higher = less sure.
        wrong_N: (N,) bool.

    Raises:
        UserError: NaN, or lengths differ.
    """
    errors_N = _errors_kept(uncertainty_N, wrong_N)
    return float(np.mean(errors_N / np.arange(1, len(errors_N) + 1))) if len(errors_N) else NOTHING


def e_aurc(uncertainty_N: NDArray[np.floating], wrong_N: NDArray[np.bool_]) -> Score:
    """:func:`aurc` less that of an oracle that is unsure of the wrong rows alone; 0 is perfect."""
    best = aurc(wrong_N.astype(np.float64), wrong_N)
    found = aurc(uncertainty_N, wrong_N)
    return found - best if not isinstance(found, Undefined) and not isinstance(best, Undefined) else NOTHING


def augrc(uncertainty_N: NDArray[np.floating], wrong_N: NDArray[np.bool_]) -> Score:
    """Area under the generalised-risk-coverage curve, in [0, ½], lower is better.

    Raises:
        UserError: NaN, or lengths differ.
    """
    errors_N = _errors_kept(uncertainty_N, wrong_N)
    rows = len(errors_N)
    return float((errors_N.sum() - errors_N[-1] / 2) / rows**2) if rows else NOTHING


def accuracy_at(uncertainty_N: NDArray[np.floating], wrong_N: NDArray[np.bool_], *, coverage: float) -> Score:
    """Accuracy of the ⌈coverage · N⌉ most certain rows, in [0, 1].

    Raises:
        UserError: NaN, or lengths differ.
    """
    errors_N = _errors_kept(uncertainty_N, wrong_N)
    kept = int(np.ceil(round(coverage * len(errors_N), 9)))  # 0.9 · 10 is not 9 to the last bit
    return float(1 - errors_N[kept - 1] / kept) if kept else NOTHING


def abstention_for(uncertainty_N: NDArray[np.floating], wrong_N: NDArray[np.bool_], *, accuracy: float) -> Score:
    """The smallest share of rows, in [0, 1), to reject for an accuracy of those kept of at least ``accuracy``.

    Raises:
        UserError: NaN, or lengths differ.
    """
    errors_N = _errors_kept(uncertainty_N, wrong_N)
    if not len(errors_N):
        return NOTHING
    kept_N = np.arange(1, len(errors_N) + 1)
    enough = kept_N[errors_N <= (1 - accuracy) * kept_N + 1e-9]
    if not len(enough):
        return Undefined(f"no share of rows has an accuracy of {accuracy:g}")
    return float(1 - enough[-1] / len(errors_N))


def rejection_curve(
    uncertainty_N: NDArray[np.floating], wrong_N: NDArray[np.bool_], *, points: int = 101
) -> RejectionCurve:
    """Accuracy of those kept when the least certain 0 … (points − 1)/points are rejected; at least one row is kept.

    Args:
        uncertainty_N: (N,) floats, higher = less sure.
        wrong_N: (N,) bool.
        points: how many points, if there are as many rows; no point is interpolated.

    Raises:
        UserError: NaN, or lengths differ.
    """
    errors_N = _errors_kept(uncertainty_N, wrong_N)
    rows = len(errors_N)
    if rows == 0:
        return RejectionCurve(rejected_P=np.zeros(0), accuracy_P=np.zeros(0))
    kept_P = np.unique(rows - rows * np.arange(points) // points)[::-1]
    return RejectionCurve(rejected_P=1 - kept_P / rows, accuracy_P=1 - errors_N[kept_P - 1] / kept_P)
