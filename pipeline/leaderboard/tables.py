"""The leaderboard as a table: for the page, in Markdown, in LaTeX, and all its numbers as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import replace

from pipeline.leaderboard.entries import Board
from pipeline.leaderboard.runs import METRICS, Numbers
from pipeline.report.escape import latex, markdown, spreadsheet
from pipeline.report.parts import Cell, Table, number

AVERAGE = "mean"


def table(board: Board) -> Table:
    """A line an entry: R@1 and R-AUROC over all datasets, then the R-AUROC of each; the best of a column is bold."""
    several = len(board.datasets) > 1
    means = ("R@1", "R-AUROC") if not several else (f"{AVERAGE} R@1", f"{AVERAGE} R-AUROC")
    rows, values = [], []
    for entry in board.entries:
        found: list[Numbers] = [entry.average(board.datasets, metric) for metric in ("recall_at_1", "r_auroc")]
        found += [entry.numbers(dataset, "r_auroc") for dataset in board.datasets] if several else []
        values.append([numbers["median"] for numbers in found])
        names = [Cell(text=text, value=text) for text in (entry.name, entry.backbone)]
        seeds = len(entry.seeds)
        rows.append([*names, *(number(numbers) for numbers in found), Cell(text=str(seeds), value=seeds)])
    best = [_best([value for value in column if value is not None]) for column in zip(*values, strict=True)]
    strong = [
        [
            replace(
                cell, strong=0 <= place - 2 < len(best) and cell.value is not None and cell.value == best[place - 2]
            )
            for place, cell in enumerate(row)
        ]
        for row in rows
    ]
    columns = ("Score", "Backbone", *means, *(board.datasets if several else ()), "Seeds")
    roles = [entry.role for entry in board.entries]
    return Table(caption="Leaderboard", columns=columns, rows=strong, classes=roles)


def _best(values: Sequence[float]) -> float | None:
    """The highest; none where there is nothing to choose from."""
    return max(values) if len(set(values)) > 1 else None


def aliases(board: Board) -> list[str]:
    """Entries that have another name in some of their runs: the same head and settings, put together."""
    found = []
    for entry in board.entries:
        first = entry.called[entry.runs[0]]
        others = {name: run for run, name in reversed([*entry.called.items()]) if name != first}
        said = [f"{name} in {run.name}" for name, run in sorted(others.items())]
        if said:
            found.append(f"{entry.name}, {entry.backbone}: also {', '.join(said)}, with the same settings.")
    return found


def undefined(board: Board) -> list[str]:
    """What is undefined, and why."""
    made = table(board)
    return [
        f"{row[0].text}, {row[1].text}: no {column}: {cell.reason}."
        for row in made.rows
        for column, cell in zip(made.columns, row, strict=True)
        if cell.reason
    ]


def as_markdown(board: Board) -> str:
    """The table; reasons of what is undefined follow."""
    made = table(board)
    lines = [
        _row([markdown(name) for name in made.columns]),
        _row(["--:" if name in made.numbers else ":--" for name in made.columns]),
    ]
    for row in made.rows:
        lines.append(_row([f"**{markdown(cell.text)}**" if cell.strong else markdown(cell.text) for cell in row]))
    reasons = [f"- {markdown(line)}" for line in (*aliases(board), *undefined(board))]
    return "\n".join([*lines, *(["", *reasons] if reasons else [])]) + "\n"


def as_latex(board: Board) -> str:
    """The table for a paper, with the rules of the package booktabs."""
    made = table(board)
    places = "".join("r" if name in made.numbers else "l" for name in made.columns)
    lines = [r"% needs \usepackage{booktabs}", rf"\begin{{tabular}}{{{places}}}", r"\toprule"]
    lines += [" & ".join(latex(name) for name in made.columns) + r" \\", r"\midrule"]
    for row in made.rows:
        cells = [rf"\textbf{{{latex(cell.text)}}}" if cell.strong else latex(cell.text) for cell in row]
        # after a line's end, a bracket or a star would be an argument of it
        lines.append("{}" * cells[0].startswith(("[", "*")) + " & ".join(cells) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n"


def as_csv(board: Board) -> str:
    """All numbers, a line for each entry, dataset (``mean``: over all of them) and metric."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    head = ("score", "backbone", "role", "dataset", "metric", "median", "distance", "min", "max", "seeds", "undefined")
    writer.writerow(head)
    for entry in board.entries:
        for dataset in (*board.datasets, AVERAGE):
            for metric in METRICS:
                average = dataset == AVERAGE
                found = entry.average(board.datasets, metric) if average else entry.numbers(dataset, metric)
                values = found["values"]
                ends = (min(values), max(values)) if values else ("", "")
                numbers = (found["median"], found["distance"]) if values else ("", "")
                names = (entry.name, entry.backbone, entry.role, dataset, metric)
                texts = [spreadsheet(text) for text in (*names, found["undefined"] or "")]
                writer.writerow([*texts[:-1], *numbers, *ends, len(values), texts[-1]])
    return buffer.getvalue()


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
