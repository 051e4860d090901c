"""Do uncertainties agree with each other, with people, or with what was done to an image? Rank correlations, shares.

Shape suffixes: N rows, M scores, A classes that annotators chose from, K strengths.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipeline.errors import UserError
from pipeline.metrics.checks import refuse_nan, same_length
from pipeline.metrics.undefined import Score, Undefined


def rank_correlation(left_N: NDArray[np.floating], right_N: NDArray[np.floating]) -> Score:
    """Spearman's ρ, in [−1, 1], ties at their mean rank; undefined where one of the two does not vary.

    Raises:
        UserError: NaN, or lengths differ.
    """
    same_length(left=left_N, right=right_N)
    return _correlation(_centred_ranks(left_N, "left"), _centred_ranks(right_N, "right"))


def agreement(scores: Mapping[str, NDArray[np.floating]]) -> dict[str, dict[str, Score]]:
    """:func:`rank_correlation` of each of M scores (N,) with each, by name; each is ranked once.

    Raises:
        UserError: NaN, or lengths differ.
    """
    same_length(**scores)
    ranks = {name: _centred_ranks(value_N, name) for name, value_N in scores.items()}
    return {one: {other: _correlation(ranks[one], ranks[other]) for other in ranks} for one in ranks}


def _centred_ranks(value_N: NDArray[np.floating], name: str) -> NDArray[np.float64]:
    """Ranks less their mean, ties at their mean rank."""
    from scipy.stats import rankdata  # where it is computed: scipy.stats takes a second to import

    refuse_nan(value_N, name)
    return np.asarray(rankdata(value_N) - (len(value_N) + 1) / 2)


def _correlation(rank_N: NDArray[np.float64], other_N: NDArray[np.float64]) -> Score:
    if (rows := len(rank_N)) < 2:
        return Undefined(f"needs two rows, there {'is' if rows == 1 else 'are'} {rows}")
    length = float(np.sqrt((rank_N @ rank_N) * (other_N @ other_N)))
    if length == 0:
        return Undefined("one of the two is the same for all rows")
    return float(np.clip((rank_N @ other_N) / length, -1, 1))


def annotator_entropy(votes_NA: NDArray[np.number]) -> NDArray[np.float64]:
    """Entropy in nats of what annotators said of each row, (N,): how ambiguous it is to people.

    Args:
        votes_NA: (N, A) counts or probabilities, not negative; a row need not add up to one.

    Raises:
        UserError: a negative vote, NaN, or a row without votes.
    """
    votes = np.asarray(votes_NA, dtype=np.float64)
    refuse_nan(votes, "votes")
    total_N = votes.sum(axis=1)
    bad_N = (votes < 0).any(axis=1) | ~(total_N > 0)
    if bad_N.any():
        raise UserError(f"votes: {int(bad_N.sum())} rows have none, or negative ones; the first is {bad_N.argmax()}.")
    share_NA = votes / total_N[:, None]
    return -np.where(share_NA > 0, share_NA * np.log(np.where(share_NA > 0, share_NA, 1)), 0).sum(axis=1)


def share_higher(changed_N: NDArray[np.floating], original_N: NDArray[np.floating]) -> Score:
    """Share of rows whose changed view (a crop, a blur) has the higher uncertainty, equals by half, in [0, 1].

    Raises:
        UserError: NaN, or lengths differ.
    """
    rows = same_length(changed=changed_N, original=original_N)
    refuse_nan(changed_N, "changed")
    refuse_nan(original_N, "original")
    if not rows:
        return Undefined("no row to compare")
    return float(((changed_N > original_N).sum() + (changed_N == original_N).sum() / 2) / rows)


@dataclass(frozen=True, kw_only=True)
class Response:
    """The uncertainty against the strength of an intervention.

    Attributes:
        median_K: median uncertainty at each strength, weakest first.
        rises: no step goes down, and the last is above the first.
        falls_at: place of the first strength whose median is below that before; None where there is none.
    """

    median_K: NDArray[np.float64]
    rises: bool
    falls_at: int | None


def response(uncertainty_K: Sequence[NDArray[np.floating]]) -> Response:
    """How the uncertainty (N,) of the same rows goes with K strengths of an intervention, weakest first.

    Raises:
        UserError: no strength, no row, or NaN.
    """
    if not len(uncertainty_K) or not all(len(values) for values in uncertainty_K):
        raise UserError("response: needs at least one strength, and rows at each.")
    for place, values in enumerate(uncertainty_K):
        refuse_nan(values, f"uncertainty at strength {place}")
    median_K = np.array([np.median(values) for values in uncertainty_K], dtype=np.float64)
    down = np.flatnonzero(np.diff(median_K) < 0)
    return Response(
        median_K=median_K,
        rises=not len(down) and bool(median_K[-1] > median_K[0]),
        falls_at=int(down[0]) + 1 if len(down) else None,
    )
