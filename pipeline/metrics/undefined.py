"""A number that does not exist says why: it is never a silent 0, 0.5 or NaN."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Undefined:
    """A metric that the data do not define, with the reason, as a sentence for the report."""

    reason: str


Score = float | Undefined
"""What a metric returns."""


def plain(score: Score) -> float | None:
    """The score as JSON has it: a number, or null where it is undefined."""
    return None if isinstance(score, Undefined) else float(score)


def reason(score: Score) -> str | None:
    """Why the score is undefined; None where it is a number."""
    return score.reason if isinstance(score, Undefined) else None
