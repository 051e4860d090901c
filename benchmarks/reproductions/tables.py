"""Tables in Markdown: ours beside the paper's."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pipeline.errors import UserError
from pipeline.files import write_bytes
from pipeline.metrics.aggregate import Aggregate, over_seeds


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table; the first column is of words, the others of numbers."""
    rule = ["---", *["--:"] * (len(head) - 1)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, rule, *rows))


def cell(values: Sequence[float | None], digits: int) -> str:
    """Median over seeds ± the larger distance to the least and the greatest; – where there is none."""
    if not values or any(value is None for value in values):
        return "–"
    made = over_seeds([float(value) for value in values if value is not None])
    assert isinstance(made, Aggregate)
    if made.median >= 10_000:
        return f"{made.median:.0e}"
    spread = f" ± {made.distance:.{digits}f}" if len(values) > 1 else ""
    return f"{made.median:.{digits}f}{spread}"


def beside(ours: str, theirs: Any, digits: int) -> str:
    """Ours, and in brackets the paper's, if it has one."""
    if theirs is None:
        return ours
    return f"{ours} ({theirs if isinstance(theirs, str) else f'{theirs:.{digits}f}'})"


def values_of(results: Sequence[Mapping[str, Any]], *path: str) -> list[float | None]:
    """One number of each result; None where it is undefined."""
    found = []
    for result in results:
        value: Any = result["scores"]
        for name in path:
            value = value.get(name)
        found.append(value)
    return found


def bars_of(bars: Sequence[Mapping[str, Any]], results: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """What was to be reached, and whether it was: medians over seeds, or the difference of two rows' medians."""
    lines = []
    for bar in bars:
        names = [bar["row"], *([bar["over"]] if "over" in bar else [])]
        of_rows = [values_of(results.get(name, []), *bar["score"].split(".")) for name in names]
        seeds = " and ".join(str(len(values)) for values in of_rows)
        wanted = f"≥ {bar['at_least']}" if "at_least" in bar else f"≤ {bar['at_most']}"
        if any(not values or None in values for values in of_rows):
            lines.append([bar["what"], wanted, "–", seeds, "not known"])
            continue
        medians = [statistics.median(value for value in values if value is not None) for values in of_rows]
        reached = medians[0] - sum(medians[1:])
        met = reached >= bar["at_least"] if "at_least" in bar else reached <= bar["at_most"]
        lines.append([bar["what"], wanted, f"{reached:.3f}", seeds, "yes" if met else "no"])
    return markdown(["bar", "wanted", "reached", "seeds", "met"], lines)


def show(parts: Mapping[str, str], document: Path | None) -> None:
    """Print each part under its name; and put it into a document, between the lines that name it and its end.

    Raises:
        UserError: the document has no place for a part.
    """
    for name, text in parts.items():
        print(f"\n{name}\n\n{text}")
    if document is None:
        return
    whole = document.read_text(encoding="utf-8")
    for name, text in parts.items():
        before, mark, after = whole.partition(f"<!-- {name} -->\n")
        if not mark or "<!-- end -->" not in after:
            raise UserError(f"{document}: no lines '<!-- {name} -->' and '<!-- end -->' to put the table between.")
        whole = f"{before}{mark}{text}\n<!-- end -->{after.partition('<!-- end -->')[2]}"
    write_bytes(document, whole.encode())
