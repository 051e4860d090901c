"""R-AUROC: does a higher uncertainty mean that the nearest neighbour is wrong? (URL, Sec. 3.2, Alg. 1, App. A.)

It is the probability that a row with a wrong neighbour has the higher uncertainty of a random wrong and a random right
row, ties ½. It is taken from ranks: nothing is squashed, scaled or binned, so any monotone change of the uncertainty
leaves it as it is.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pipeline.metrics.checks import refuse_nan, same_length
from pipeline.metrics.ranked import Ranked
from pipeline.metrics.retrieval import Retrieval
from pipeline.metrics.undefined import Score, Undefined


def auroc(score_N: NDArray[np.floating], positive_N: NDArray[np.bool_]) -> Score:
    """Area under the ROC curve of ``score_N`` for ``positive_N``, by the Mann-Whitney statistic, ties ½.

    Args:
        score_N: (N,) floats, infinities allowed; higher speaks for positive.
        positive_N: (N,) bool.

    Returns:
        In [0, 1], or undefined where only one of the two kinds is there.

    Raises:
        UserError: NaN scores, or lengths differ.
    """
    from scipy.stats import rankdata  # where it is computed: scipy.stats takes a second to import

    rows = same_length(score=score_N, positive=positive_N)
    refuse_nan(score_N, "score")
    positives = int(positive_N.sum())
    negatives = rows - positives
    if positives == 0 or negatives == 0:
        return Undefined(f"needs both kinds of rows: {positives} positive, {negatives} negative")
    rank_sum = float(rankdata(score_N)[positive_N].sum())
    return (rank_sum - positives * (positives + 1) / 2) / (positives * negatives)


def r_auroc(uncertainty_N: NDArray[np.floating], retrieval: Retrieval) -> Score:
    """R-AUROC of an uncertainty (N,), higher = less sure, over the counted rows of ``retrieval``.

    Raises:
        UserError: NaN anywhere in ``uncertainty_N`` (counted or not), or lengths differ.
    """
    return _of_counted(uncertainty_N, retrieval.correct_N, retrieval.counted_N)


def r_auroc_at(uncertainty_N: NDArray[np.floating], ranked: Ranked, k: int) -> Score:
    """The same where a row is right as soon as one of its ``k`` nearest rows is relevant, as R@k has it; at 1, R-AUROC.

    Raises:
        UserError: fewer than k neighbours are known; NaN anywhere in ``uncertainty_N``, or lengths differ.
    """
    return _of_counted(uncertainty_N, ranked.found_within(k), ranked.counted_N)


def _of_counted(
    uncertainty_N: NDArray[np.floating], correct_N: NDArray[np.bool_], counted_N: NDArray[np.bool_]
) -> Score:
    same_length(uncertainty=uncertainty_N, retrieval=correct_N)
    refuse_nan(uncertainty_N, "uncertainty")
    wrong_C = ~correct_N[counted_N]
    score = auroc(uncertainty_N[counted_N], wrong_C)
    if isinstance(score, Undefined):
        right = len(wrong_C) - int(wrong_C.sum())
        return Undefined(f"needs right and wrong neighbours: {right} right, {int(wrong_C.sum())} wrong")
    return score
