"""Thresholds that are set on one half of the rows, hold with a guarantee, and are tried on the other half.

Shape suffixes: N rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipeline.held_out import held_out
from pipeline.metrics.checks import refuse_nan, same_length


def calibration_half(keys: list[str]) -> NDArray[np.bool_]:
    """(N,) rows to calibrate on: half of all, by a hash of their keys."""
    if not keys:
        return np.zeros(0, dtype=bool)
    return held_out(np.array([f"calibration {key}".encode() for key in keys]), 0.5)


def error_interval(errors: int, count: int, confidence: float = 0.95) -> tuple[float, float]:
    """Clopper and Pearson's exact interval for a probability of which ``errors`` of ``count`` draws were seen.

    (*The use of confidence or fiducial limits illustrated in the case of the binomial*, Biometrika 1934.)
    """
    tail = (1 - confidence) / 2
    return 1 - upper_limit(count - errors, count, tail), upper_limit(errors, count, tail)


def upper_limit(errors: int, count: int, tail: float) -> float:
    """The probability at which as few errors or fewer are seen with the chance ``tail``; 1 where all are errors."""
    from scipy.stats import beta

    return 1.0 if errors >= count else float(beta.ppf(1 - tail, errors + 1, count - errors))


LEVELS = 20  # thresholds that are tested


@dataclass(frozen=True, kw_only=True)
class Threshold:
    """Up to which uncertainty rows are kept.

    Attributes:
        uncertainty: the largest that is kept; −∞: nothing can be kept.
        bound: upper limit of the error among the kept, in [0, 1].
    """

    uncertainty: float
    bound: float


def guaranteed_threshold(
    uncertainty_N: NDArray[np.floating], wrong_N: NDArray[np.bool_], *, target: float, risk: float
) -> Threshold:
    """The threshold that keeps most rows so that the error among kept ones is at most ``target``.

    It holds for new rows of the same source with probability 1 − ``risk`` over the draw of these rows: :data:`LEVELS`
    thresholds, which keep equal steps of the rows, are each tested with their share of the risk, and the largest that
    passes is taken (*Learn then test*, Angelopoulos et al., 2021, with Bonferroni's correction). The binary search of
    *Selection with guaranteed risk* (Geifman and El-Yaniv, NeurIPS 2017) asks fewer, but gives up where the error
    does not fall steadily.

    Args:
        uncertainty_N: (N,), higher = less sure.
        wrong_N: (N,) bool.
        target: error that is wanted, in (0, 1).
        risk: probability with which it may be exceeded, in (0, 1).

    Raises:
        UserError: NaN, or lengths differ.
    """
    count = same_length(uncertainty=uncertainty_N, wrong=wrong_N)
    refuse_nan(uncertainty_N, "uncertainty")
    order_N = np.argsort(uncertainty_N, kind="stable")
    ascending_N, errors_N = uncertainty_N[order_N], np.cumsum(wrong_N[order_N])
    for level in range(LEVELS, 0 if count else LEVELS, -1):
        last = max(1, count * level // LEVELS)
        kept = int(np.searchsorted(ascending_N, ascending_N[last - 1], side="right"))  # equals are kept together
        bound = upper_limit(int(errors_N[kept - 1]), kept, risk / LEVELS)
        if bound <= target:
            return Threshold(uncertainty=float(ascending_N[kept - 1]), bound=bound)
    return Threshold(uncertainty=-math.inf, bound=0.0)


def conformal_rank(rank_N: NDArray[np.integer], miss: float) -> float:
    """How many of the nearest rows a set must hold so that it misses all relevant ones with at most this probability.

    Split conformal prediction (Vovk et al., 2005; Angelopoulos and Bates, 2022, Sec. 1.1): the ⌈(N + 1)(1 − miss)⌉-th
    smallest of the calibration rows' scores, which are here the ranks of their first relevant row.

    Args:
        rank_N: (N,) from 1; 0: no relevant row is known near it, so its rank is beyond all.
        miss: in (0, 1).

    Returns:
        The number; infinite where too few rows, or too many without a known rank, are there.
    """
    place = math.ceil((len(rank_N) + 1) * (1 - miss) - 1e-9)
    known_N = np.sort(rank_N[rank_N > 0])
    return math.inf if place > len(known_N) else float(known_N[place - 1])
