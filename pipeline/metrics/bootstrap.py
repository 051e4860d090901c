"""How sure is a difference between two scores? Percentile intervals over resampled rows.

Both scores are taken on the same resample, so what the rows do to both drops out (a paired bootstrap; Efron and
Tibshirani, *An introduction to the bootstrap*, 1993, ch. 13). Where a method has several seeds, its number is the
median of their differences, and so is that of each resample: the interval tells of the rows, not of the seeds.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from pipeline.errors import UserError
from pipeline.metrics.undefined import Score, Undefined

T = TypeVar("T")
Metric = Callable[[NDArray[np.int64]], Score]  # rows, with repetition → the score on them


@dataclass(frozen=True, kw_only=True)
class Interval:
    """A value, and where it lies in ``level`` of the resamples.

    Attributes:
        value: on all rows.
        low, high: ends of the interval.
        left_out: resamples on which a score is undefined (say, no wrong row was drawn).
    """

    value: float
    low: float
    high: float
    left_out: int


def bootstrap(
    metric: Metric, rows: int, *, draws: int = 1000, level: float = 0.95, seed: int = 0
) -> Interval | Undefined:
    """``metric`` on all rows, and its interval; as :func:`bootstrap_all` of it alone."""
    return bootstrap_all([metric], rows, draws=draws, level=level, seed=seed)[0]


def bootstrap_all(
    metrics: Sequence[Metric], rows: int, *, draws: int = 1000, level: float = 0.95, seed: int = 0
) -> list[Interval | Undefined]:
    """Each of ``metrics`` on all rows, and its interval; all are asked of one resample before the next is drawn.

    Args:
        metrics: of row indices, e.g. :func:`median_difference`. What several of them need is computed once a resample
            where it is :func:`remembered`.
        rows: how many there are.
        draws: resamples.
        level: share of the resamples inside the interval.
        seed: of the resamples.

    Raises:
        UserError: ``level`` is not between 0 and 1, or ``draws`` below 1.
    """
    if not 0 < level < 1 or draws < 1:
        raise UserError(f"bootstrap: level {level} must be between 0 and 1, and draws {draws} at least 1.")
    every = np.arange(rows)
    wholes = [metric(every) for metric in metrics]
    defined = [metric for metric, whole in zip(metrics, wholes, strict=True) if not isinstance(whole, Undefined)]
    generator = np.random.Generator(np.random.Philox(seed))
    found: list[list[Score]] = []
    for _ in range(draws if defined else 0):
        row_D = generator.integers(0, rows, rows)
        found.append([metric(row_D) for metric in defined])
    of_defined = iter(zip(*found, strict=True))
    return [whole if isinstance(whole, Undefined) else _interval(whole, next(of_defined), level) for whole in wholes]


def _interval(whole: float, drawn: Sequence[Score], level: float) -> Interval | Undefined:
    values = np.array([value for value in drawn if not isinstance(value, Undefined)])
    if not len(values):
        return Undefined("undefined on every resample")
    low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2])
    return Interval(value=whole, low=float(low), high=float(high), left_out=len(drawn) - len(values))


def remembered(function: Callable[[NDArray[np.int64]], T]) -> Callable[[NDArray[np.int64]], T]:
    """``function`` of rows, which is not computed again when it is asked of the very rows that it was asked of last."""
    last: list[tuple[NDArray[np.int64], T]] = []

    def asked(row_D: NDArray[np.int64]) -> T:
        if not last or last[0][0] is not row_D:
            last[:] = [(row_D, function(row_D))]
        return last[0][1]

    return asked


def median_difference(pairs: Sequence[tuple[Metric, Metric]]) -> Metric:
    """The median over ``pairs``, one a seed, of ``one − other`` on the same rows; undefined where one of them is.

    Args:
        pairs: metrics of row indices, e.g. ``lambda r: auroc(head[r], wrong[r])``, and the same of the other; what
            stands in several pairs is asked once.
    """
    distinct = list(dict.fromkeys(metric for pair in pairs for metric in pair))

    def difference(row_D: NDArray[np.int64]) -> Score:
        said: dict[Metric, float] = {}
        for metric in distinct:
            value = metric(row_D)
            if isinstance(value, Undefined):
                return value
            said[metric] = value
        return statistics.median(said[one] - said[other] for one, other in pairs)

    return difference
