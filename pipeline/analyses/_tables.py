"""A table with a line for each contender, and the best of each column bold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any, Literal

from pipeline.report.parts import Cell, Context, Table, number

Better = Literal["high", "low", ""]


def contender_table(
    caption: str,
    numbers: Mapping[str, Mapping[str, Any]],
    columns: Mapping[str, tuple[str, Better]],
    context: Context,
    *,
    signed: bool = False,
) -> Table:
    """Lines in the order of ``numbers``.

    Args:
        caption: of the table.
        numbers: contender → key → numbers over seeds.
        columns: heading → key, and which end is better; "" = neither is.
        context: says which contenders are baselines.
        signed: numbers are differences.
    """
    rows = dataset_rows({"": numbers}, columns, signed=signed)
    roles = ["baseline" if name in context.look.baselines else "compare" for name in numbers]
    if roles and [next(iter(numbers))] == list(context.look.heads[:1]):
        roles[0] = "head"
    return Table(caption=caption, columns=("Score", *columns), rows=[row[1:] for row in rows], classes=roles)


def comparison_table(
    caption: str,
    numbers: Mapping[str, Mapping[str, Mapping[str, Any]]],
    columns: Mapping[str, tuple[str, Better]],
    context: Context,
) -> Table:
    """A line for each collection and contender: title of the collection → contender → key → numbers over seeds."""
    rows = dataset_rows(numbers, columns)
    roles = [
        "baseline" if name in context.look.baselines else "compare" for found in numbers.values() for name in found
    ]
    return Table(caption=caption, columns=("Dataset", "Score", *columns), rows=rows, classes=roles)


def dataset_rows(
    numbers: Mapping[str, Mapping[str, Mapping[str, Any]]],
    columns: Mapping[str, tuple[str, Better]],
    *,
    signed: bool = False,
) -> list[list[Cell]]:
    """Cells of dataset, contender and each column; the best median of a dataset is bold."""
    rows = []
    for title, found in numbers.items():
        best = {
            key: _best([item[key]["median"] for item in found.values()], better) for key, better in columns.values()
        }
        for name, item in found.items():
            cells = [number(item[key], signed=signed, best=best[key]) for key, _ in columns.values()]
            rows.append([Cell(text=title, value=title), Cell(text=name, value=name), *cells])
    return rows


def with_mean(numbers: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> dict[str, Mapping[str, Mapping[str, Any]]]:
    """With the mean of several collections, seed by seed, of the contenders that all have: as articles report it."""
    if len(numbers) < 2:
        return dict(numbers)
    first, *others = numbers.values()
    shared = [name for name in first if all(name in other for other in others)]
    means = {
        name: {key: _mean([found[name][key] for found in numbers.values()]) for key in first[name]} for name in shared
    }
    return {**numbers, f"mean of the {len(numbers)}": means}


def _mean(of: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    from pipeline.metrics.aggregate import plain_numbers
    from pipeline.metrics.undefined import Undefined

    if reasons := [item["undefined"] for item in of if item["median"] is None]:
        return plain_numbers([Undefined(reasons[0])])
    return plain_numbers([fmean(values) for values in zip(*(item["values"] for item in of), strict=True)])


def _best(medians: Sequence[float | None], better: Better) -> float | None:
    known = [median for median in medians if median is not None]
    if not better or len(set(known)) < 2:  # nothing to choose from
        return None
    return max(known) if better == "high" else min(known)
