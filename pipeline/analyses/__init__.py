"""Analyses of what was evaluated: one file each, found by its name (docs/adding_an_analysis.md)."""

from __future__ import annotations

from collections.abc import Sequence

from pipeline.analyses.base import Analysis, CollectionAnalysis, Comparison
from pipeline.discovery import implementation, names, unknown_name

QUICK = "quick"
ALL = "all"

__all__ = ["ALL", "QUICK", "Analysis", "CollectionAnalysis", "Comparison", "chosen", "make_analysis"]


def make_analysis(name: str) -> Analysis:
    """The analysis in ``pipeline/analyses/<name>.py``.

    Raises:
        UserError: there is none; lists the valid names.
    """
    found: Analysis = implementation(__name__, name, "analysis", Analysis)(name)
    return found


def chosen(asked: Sequence[str]) -> list[Analysis]:
    """The analyses that are asked for, in the order of the report.

    Args:
        asked: names; ``quick``: all that take seconds; ``all``; ``-name``: left out, whatever else is asked.

    Raises:
        UserError: no such analysis; lists the valid names.
    """
    known = names(__name__)
    wanted: set[str] = set()
    for word in asked:
        if word not in (QUICK, ALL) and word.removeprefix("-") not in known:
            raise unknown_name("analysis", word, [*known, QUICK, ALL])
        if word in (QUICK, ALL):
            wanted |= {name for name in known if word == ALL or make_analysis(name).quick}
        elif not word.startswith("-"):
            wanted.add(word)
    wanted -= {word[1:] for word in asked if word.startswith("-")}
    return sorted((make_analysis(name) for name in wanted), key=lambda item: (item.place, item.name))
