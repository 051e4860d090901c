"""A number that does not exist says why: it is never a silent 0, 0.5 or NaN."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Undefined:
    """A metric that the data do not define, with the reason, as a sentence for the report."""

    reason: str


Score = float | Undefined
"""What a metric returns."""
