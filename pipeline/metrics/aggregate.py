"""Several seeds become one number and its spread: the median, and the larger distance from it to the extremes."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pipeline.errors import UserError
from pipeline.metrics.undefined import Score, Undefined


@dataclass(frozen=True, kw_only=True)
class Aggregate:
    """A number over seeds, printed as ``median ± distance``.

    Attributes:
        values: one a seed, in the order of the seeds.
        median: of the values.
        distance: the larger of (maximum − median) and (median − minimum); 0 for one seed.
    """

    values: tuple[float, ...]
    median: float
    distance: float


def over_seeds(values: Sequence[Score]) -> Aggregate | Undefined:
    """Aggregate one score a seed. Undefined as soon as one seed is: a median of the others would be of another thing.

    Raises:
        UserError: no values.
    """
    if not values:
        raise UserError("aggregate: needs the value of one seed at least.")
    numbers = [value for value in values if not isinstance(value, Undefined)]
    reasons = [value.reason for value in values if isinstance(value, Undefined)]
    if reasons:
        return Undefined(reasons[0] if len(values) == 1 else f"{len(reasons)} of {len(values)} seeds: {reasons[0]}")
    median = statistics.median(numbers)
    distance = max(max(numbers) - median, median - min(numbers))
    return Aggregate(values=tuple(float(number) for number in numbers), median=median, distance=distance)


def plain_numbers(values: Sequence[Score]) -> dict[str, Any]:
    """:func:`over_seeds` as plain values: nulls, no values and the reason where it is undefined."""
    found = over_seeds(values)
    if isinstance(found, Undefined):
        return {"median": None, "distance": None, "values": [], "undefined": found.reason}
    return {"median": found.median, "distance": found.distance, "values": list(found.values), "undefined": None}
