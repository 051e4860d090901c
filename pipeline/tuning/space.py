"""The points of a search: settings that spread evenly over ranges, the same on every machine and in any order.

Points are those of a Halton sequence, so each is a function of its number alone: trials run side by side, and ten of
them cover two or three ranges better than ten random ones. Trial 0 is the settings as they stand.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

RATE = "base_lr"


@dataclass(frozen=True, kw_only=True)
class Span:
    """A range of numbers; ``log``: evenly over orders of magnitude."""

    low: float
    high: float
    log: bool = True

    def at(self, share: float) -> float:
        """The value at ``share`` in [0, 1) of the range, to four digits."""
        ends = (math.log(self.low), math.log(self.high)) if self.log else (self.low, self.high)
        value = ends[0] + share * (ends[1] - ends[0])
        return float(f"{math.exp(value) if self.log else value:.4g}")


@dataclass(frozen=True)
class Choice:
    """One of some values."""

    values: tuple[Any, ...]

    def at(self, share: float) -> Any:
        """The value at ``share`` in [0, 1)."""
        return self.values[int(share * len(self.values))]


Space = Mapping[str, Span | Choice]

#: Every head that is trained: URL, App. B, "searched over a range of [0.0001, 0.01]".
RATES = Span(low=1e-4, high=1e-2)


def values_of(space: Space, trial: int) -> dict[str, Any]:
    """Setting → its value in a trial; empty for trial 0."""
    from scipy.stats.qmc import Halton

    if trial == 0 or not space:
        return {}
    drawn = Halton(len(space), scramble=False).fast_forward(trial).random()[0]  # point 0 is a corner
    return {key: one.at(float(share)) for (key, one), share in zip(space.items(), drawn, strict=True)}
