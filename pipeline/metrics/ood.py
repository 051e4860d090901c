"""Does an uncertainty tell strangers from rows like those it was trained on? AUROC, AUPRC and FPR95.

Strangers (out of distribution) are the positive class, and a higher uncertainty speaks for them.

Shape suffixes: I rows from the distribution, O rows from outside, T thresholds.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipeline.metrics.checks import refuse_nan
from pipeline.metrics.r_auroc import auroc
from pipeline.metrics.undefined import Score, Undefined


@dataclass(frozen=True, kw_only=True)
class Detection:
    """How well strangers are found.

    Attributes:
        auroc: in [0, 1], ½ by chance.
        auprc: average precision, in [0, 1], by chance the share of strangers.
        fpr95: share of known rows that are taken for strangers where at least 95 % of the strangers are found.
    """

    auroc: Score
    auprc: Score
    fpr95: Score


def detection(known_I: NDArray[np.floating], stranger_O: NDArray[np.floating]) -> Detection:
    """Compare the uncertainties of known rows and of strangers.

    Args:
        known_I: (I,) uncertainties of rows of the distribution, higher = less sure; infinities allowed.
        stranger_O: (O,) uncertainties of rows from outside.

    Raises:
        UserError: NaN.
    """
    refuse_nan(known_I, "uncertainty of known rows")
    refuse_nan(stranger_O, "uncertainty of strangers")
    if not len(known_I) or not len(stranger_O):
        reason = Undefined(f"needs both kinds of rows: {len(stranger_O)} strangers, {len(known_I)} known")
        return Detection(auroc=reason, auprc=reason, fpr95=reason)
    score_N = np.concatenate([known_I, stranger_O]).astype(np.float64)
    stranger_N = np.arange(len(score_N)) >= len(known_I)
    found_T, false_T = _counts(score_N, stranger_N)
    precision_T, recall_T = found_T / (found_T + false_T), found_T / len(stranger_O)
    enough = int(np.argmax(found_T >= 0.95 * len(stranger_O)))
    return Detection(
        auroc=auroc(score_N, stranger_N),
        auprc=float((np.diff(recall_T, prepend=0.0) * precision_T).sum()),
        fpr95=float(false_T[enough] / len(known_I)),
    )


def _counts(score_N: NDArray[np.float64], stranger_N: NDArray[np.bool_]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Strangers and known rows at or above each distinct score, from the highest down."""
    _, place_N = np.unique(-score_N, return_inverse=True)
    strangers_T, all_T = np.bincount(place_N, weights=stranger_N), np.bincount(place_N)
    found_T = np.cumsum(strangers_T).astype(np.int64)
    return found_T, np.cumsum(all_T) - found_T
