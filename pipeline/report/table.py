"""The table of results: a line for each collection and score, the entropy baseline always among them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pipeline.report.escape import markdown
from pipeline.report.look import ENTROPY
from pipeline.report.parts import UNDEFINED, Cell, Table, number

COLUMNS = ("Dataset", "Score", "R@1", "R-AUROC", "− entropy", "AURC", "Seeds")
NUMBERS = frozenset(COLUMNS[2:])  # set flush right


@dataclass(frozen=True, kw_only=True)
class Line:
    """One line: cells in the order of COLUMNS, the contender's role, and whether its R-AUROC is its dataset's best."""

    cells: tuple[Cell, ...]
    role: str
    best: bool


def lines(results: Sequence[Mapping[str, Any]]) -> list[Line]:
    """The lines of all collections, in the given order."""
    return [line for result in results for line in _lines_of(result)]


def _lines_of(result: Mapping[str, Any]) -> Iterator[Line]:
    found = [(item, name) for item in result["contenders"] for name in item.get("scores", {"": None})]
    medians = [item["scores"][name]["r_auroc"]["median"] for item, name in found if name]
    best = max((median for median in medians if median is not None), default=None)
    for item, name in found:
        dataset = Cell(text=result["dataset"], value=result["dataset"])
        shown = item["name"] if name in ("", item.get("primary")) else f"{item['name']}: {name}"
        score = Cell(text=shown, value=shown)
        if not name:
            absent = Cell(text=UNDEFINED, reason=item["absent"])
            yield Line(cells=(dataset, score, *[absent] * 4, Cell(text="0", value=0)), role=item["role"], best=False)
            continue
        numbers = item["scores"][name]
        compared = name == item["primary"] and item["name"] != ENTROPY
        advantage = number(item["advantage_over_entropy"], signed=True) if compared else Cell(text="–")
        cells = (
            dataset,
            score,
            number(item["recall_at_1"]),
            number(numbers["r_auroc"]),
            advantage,
            number(numbers["aurc"]),
            Cell(text=str(len(item["seeds"])), value=len(item["seeds"])),
        )
        yield Line(cells=cells, role=item["role"], best=best is not None and numbers["r_auroc"]["median"] == best)


def main_table(results: Sequence[Mapping[str, Any]]) -> Table:
    """The lines as a table of the report; of each collection the best is bold."""
    rows = [[*line.cells[:3], replace(line.cells[3], strong=line.best), *line.cells[4:]] for line in lines(results)]
    classes = [line.role for line in lines(results)]
    return Table(caption="Results", columns=COLUMNS, rows=rows, classes=classes)


def undefined(results: Sequence[Mapping[str, Any]]) -> list[str]:
    """Everything in the table that is undefined, with its reason, grouped by reason."""
    columns: dict[tuple[str, str, str], list[str]] = {}
    for line in lines(results):
        for column, cell in zip(COLUMNS, line.cells, strict=True):
            if cell.reason:
                columns.setdefault((line.cells[0].text, line.cells[1].text, cell.reason), []).append(column)
    return [f"{dataset}, {score}: no {', '.join(found)}: {why}." for (dataset, score, why), found in columns.items()]


def as_text(results: Sequence[Mapping[str, Any]]) -> list[str]:
    """The table in aligned columns, for a terminal."""
    rows = [list(COLUMNS), *([cell.text for cell in line.cells] for line in lines(results))]
    widths = [max(len(row[place]) for row in rows) for place in range(len(COLUMNS))]
    rows.insert(1, ["─" * width for width in widths])
    return ["  ".join(_pad(row, widths)).rstrip() for row in rows]


def _pad(row: Sequence[str], widths: Sequence[int]) -> Iterator[str]:
    for column, text, width in zip(COLUMNS, row, widths, strict=True):
        yield text.rjust(width) if column in NUMBERS else text.ljust(width)


def as_markdown(results: Sequence[Mapping[str, Any]]) -> str:
    """The table in Markdown; the best R-AUROC of each collection is bold; reasons of what is undefined follow."""
    rows = ["| " + " | ".join(COLUMNS) + " |", "|" + "|".join("--:" if c in NUMBERS else ":--" for c in COLUMNS) + "|"]
    for line in lines(results):
        texts = [markdown(cell.text) for cell in line.cells]
        if line.best:
            texts[3] = f"**{texts[3]}**"
        rows.append("| " + " | ".join(texts) + " |")
    reasons = [f"- {markdown(line)}" for line in undefined(results)]
    return "\n".join([*rows, *(["", *reasons] if reasons else [])]) + "\n"
