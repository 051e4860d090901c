"""Safe retrieval: uncertain queries are refused, and uncertain rows are no answers.

*Pretrained visual uncertainties*, Sec. 5.2, rejects and cleans away the tenth of each class that is least certain
(Tab. 1). Where classes are not known, the same is done to the least certain tenth of all.

Shape suffixes: N rows, C neighbours of a row, nearest first.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipeline.metrics.checks import refuse_nan, same_length
from pipeline.metrics.ranked import Ranked
from pipeline.metrics.undefined import Score, Undefined


def least_certain(
    uncertainty_N: NDArray[np.floating], share: float, group_N: NDArray[np.integer] | None = None
) -> NDArray[np.bool_]:
    """(N,) the least certain ⌊share · size⌋ rows, of each group if there are some; of equal ones those that come first.

    Raises:
        UserError: NaN, or lengths differ.
    """
    refuse_nan(uncertainty_N, "uncertainty")
    if group_N is None:
        group_N = np.zeros(len(uncertainty_N), dtype=np.int64)
    same_length(uncertainty=uncertainty_N, group=group_N)
    order_N = np.lexsort((-uncertainty_N, group_N))
    sorted_N = group_N[order_N]
    first_N = np.searchsorted(sorted_N, sorted_N)
    size_N = np.searchsorted(sorted_N, sorted_N, side="right") - first_N
    mask_N = np.zeros(len(uncertainty_N), dtype=bool)
    # the small number: 0.1 · 30 is a little less than 3 in floating point
    mask_N[order_N] = np.arange(len(order_N)) - first_N < np.floor(share * size_N + 1e-9)
    return mask_N


@dataclass(frozen=True, kw_only=True)
class Answers:
    """What a retrieval system answers.

    Attributes:
        error: share of wrong answers among the queries that are answered.
        refused: share of the judged queries that get no answer.
    """

    error: Score
    refused: Score


def answers(ranked: Ranked, refused_N: NDArray[np.bool_], cleaned_N: NDArray[np.bool_]) -> Answers:
    """Each query's answer is its nearest row that was not cleaned away.

    A query that is refused, or whose known neighbours were all cleaned away, gets no answer. Judged are the queries to
    which some row of the whole collection is relevant: a query all whose relevant rows were cleaned away is answered
    wrongly.

    Args:
        ranked: nearest rows of each.
        refused_N: queries that are refused.
        cleaned_N: rows that are no answers.

    Raises:
        UserError: lengths differ.
    """
    same_length(rows=ranked.relevant_N, refused=refused_N, cleaned=cleaned_N)
    there_NC = (ranked.neighbour_NC >= 0) & ~cleaned_N[ranked.neighbour_NC]
    answered_N = ranked.counted_N & ~refused_N & there_NC.any(axis=1)
    judged = int(ranked.counted_N.sum())
    if not judged:
        nothing = Undefined("to no row is another row relevant")
        return Answers(error=nothing, refused=nothing)
    if not answered_N.any():
        return Answers(error=Undefined("no query is answered"), refused=1.0)
    first_N = there_NC.argmax(axis=1)
    wrong_N = ~ranked.relevant_NC[np.arange(len(first_N)), first_N]
    return Answers(error=float(wrong_N[answered_N].mean()), refused=1 - int(answered_N.sum()) / judged)
