"""Is a confidence what comes true? Reliability curves and expected calibration errors.

ECE is Σ_b |B_b|/n · |mean of what came true in bin b − mean confidence of bin b|. All bins are closed at the right and
the first at the left too, so a confidence of exactly 0 or 1 is in a bin; public code drops those of 1.

Shape suffixes: N rows, B bins, S samples.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipeline.errors import UserError
from pipeline.metrics.checks import refuse_nan, same_length
from pipeline.metrics.undefined import Score, Undefined


@dataclass(frozen=True, kw_only=True)
class Reliability:
    """What came true in each bin that has rows, against how confident it was.

    Attributes:
        count_B: rows.
        confidence_B: mean confidence.
        outcome_B: mean of what came true.
    """

    count_B: NDArray[np.int64]
    confidence_B: NDArray[np.float64]
    outcome_B: NDArray[np.float64]

    @property
    def error(self) -> Score:
        """ECE, in [0, 1], lower is better."""
        rows = int(self.count_B.sum())
        if not rows:
            return Undefined("no row whose confidence could be compared")
        return float((self.count_B * np.abs(self.outcome_B - self.confidence_B)).sum() / rows)


def reliability(confidence_N: NDArray[np.floating], outcome_N: NDArray[np.generic], *, bins: int = 10) -> Reliability:
    """Rows in ``bins`` bins of the same width over [0, 1].

    Args:
        confidence_N: (N,) in [0, 1].
        outcome_N: (N,) bool, or floats in [0, 1] such as AP@k.
        bins: how many.

    Raises:
        UserError: NaN, a confidence or an outcome outside [0, 1], or lengths differ.
    """
    same_length(confidence=confidence_N, outcome=outcome_N)
    outcome = _share(np.asarray(outcome_N, dtype=np.float64), "outcome")
    confidence = _share(np.asarray(confidence_N, dtype=np.float64), "confidence")
    place_N = np.clip(np.ceil(confidence * bins).astype(np.int64) - 1, 0, bins - 1)
    return _binned(place_N, confidence, outcome, bins)


def retrieval_reliability(
    uncertainty_N: NDArray[np.floating], value_N: NDArray[np.floating], *, bins: int = 10
) -> Reliability:
    """Retrieval quality against ranks of uncertainty: the bins of ECE@k (Warburg et al., *Bayesian triplet*, Eq. 14).

    An uncertainty without a unit has no confidence of its own. So its percentile stands for it: the rows are ordered by
    certainty, and a row's confidence is the share of the rows that are less certain, equals by half, in (0, 1). The
    paper says "percentiles of the variance" and does not say which of a bin; here it is the mean over its rows.

    Args:
        uncertainty_N: (N,) floats, higher = less sure.
        value_N: (N,) in [0, 1], e.g. AP@k of the counted rows.
        bins: how many, of the same width in confidence and so, without ties, of the same number of rows.

    Raises:
        UserError: NaN, a value outside [0, 1], or lengths differ.
    """
    from scipy.stats import rankdata  # where it is computed: scipy.stats takes a second to import

    rows = same_length(uncertainty=uncertainty_N, value=value_N)
    refuse_nan(uncertainty_N, "uncertainty")
    confidence_N = (rankdata(-np.asarray(uncertainty_N, dtype=np.float64)) - 0.5) / max(rows, 1)
    return reliability(confidence_N, value_N, bins=bins)


def consensus(prediction_SN: NDArray[np.integer]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """What samples of a prediction agree on (Warburg et al., *Bayesian metric learning*, App. G.3).

    With the rows that were right as outcome, ``reliability(confidence, outcome)`` gives the sampling ECE of Eq. 121,
    whose weight is printed as 1/|B|; what is meant, and computed, is |B|/n.

    Args:
        prediction_SN: (S, N) classes.

    Returns:
        (N,) the most frequent class of each row, the lowest of equally frequent ones; (N,) its share of the samples.

    Raises:
        UserError: there is no sample.
    """
    if not len(prediction_SN):
        raise UserError("prediction: needs at least one sample of each row.")
    ordered_SN = np.sort(prediction_SN, axis=0)
    samples = len(ordered_SN)
    start_SN = np.ones(ordered_SN.shape, dtype=bool)
    start_SN[1:] = ordered_SN[1:] != ordered_SN[:-1]
    first_SN = np.maximum.accumulate(np.where(start_SN, np.arange(samples)[:, None], 0), axis=0)
    run_SN = np.arange(samples)[:, None] - first_SN + 1  # length so far of the run of equals
    end_N = run_SN.argmax(axis=0)  # of the first of the longest
    row_N = np.arange(ordered_SN.shape[1])
    return ordered_SN[end_N, row_N].astype(np.int64), run_SN[end_N, row_N] / samples


def _share(values: NDArray[np.float64], what: str) -> NDArray[np.float64]:
    refuse_nan(values, what)
    if len(values) and not (values.min() >= 0 and values.max() <= 1):
        raise UserError(f"{what}: must be in [0, 1], it goes from {values.min():g} to {values.max():g}.")
    return values


def _binned(
    place_N: NDArray[np.int64], confidence_N: NDArray[np.float64], outcome_N: NDArray[np.float64], bins: int
) -> Reliability:
    count_B = np.bincount(place_N, minlength=bins)
    some = count_B > 0
    confidence_B, outcome_B = (
        np.bincount(place_N, weights=value, minlength=bins)[some] / count_B[some] for value in (confidence_N, outcome_N)
    )
    return Reliability(count_B=count_B[some], confidence_B=confidence_B, outcome_B=outcome_B)
