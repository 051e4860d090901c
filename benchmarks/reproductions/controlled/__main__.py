"""``python -m benchmarks.reproductions.controlled``: runs that are missing, then the tables and the plot.

Stopped at any moment, the same command goes on.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.reproductions.command import Reproduction, Results
from benchmarks.reproductions.controlled.settings import Settings
from benchmarks.reproductions.controlled.training import run
from benchmarks.reproductions.tables import beside, cell, markdown, values_of
from pipeline.files import write_bytes
from pipeline.report.style import LIGHT, drawing, figure, png

COLUMNS = (
    ("location RMSE", "location_rmse", 2),
    ("rank corr.", "location_rank", 3),
    ("certainty RMSE", "kappa_rmse", 2),
    ("rank corr.", "kappa_rank", 2),
)
PLOTTED = ("mc_info_nce", "elk", "hib")


def table_of(rows: Sequence[str], results: Results, paper: Mapping[str, Sequence[Any]]) -> str:
    """Ours, and the paper's in brackets."""
    lines = []
    for row in rows:
        theirs, of_row = paper.get(row, [None] * len(COLUMNS)), results.get(row, [])
        pairs = [
            beside(cell(values_of(of_row, name), digits), other, digits)
            for (_, name, digits), other in zip(COLUMNS, theirs, strict=True)
        ]
        minutes = cell([result["cpu_seconds"] / 60 for result in of_row], 1)
        kappa = cell(values_of(of_row, "median_kappa"), 1)
        lines.append([row, str(len(of_row)), *pairs, kappa, minutes])
    return markdown(["", "seeds", *(name for name, _, _ in COLUMNS), "median κ̂", "CPU min a run"], lines)


def draw(results: Results, folder: Path) -> None:
    """κ̂ against κ, a panel a loss, of the first seed; nothing where there is none."""
    shown = [row for row in PLOTTED if results.get(row)]
    if not shown:
        return
    with drawing(LIGHT):
        made = figure(2.4)
        panels = np.atleast_1d(made.subplots(1, len(shown)))
        for axes, row in zip(panels, shown, strict=True):
            points = results[row][0]["scores"]["shown"]
            axes.scatter(points["true"], points["predicted"], s=2, color=LIGHT.series[1], alpha=0.4, linewidths=0)
            ends = [min(points["true"]), max(points["true"])]
            axes.plot(ends, ends, color=LIGHT.ink, linewidth=0.8, linestyle=(0, (4, 2)))
            axes.set_title(row.replace("_", " "))
            axes.set_xlabel("true κ(x)")
        panels[0].set_ylabel("predicted κ̂(x)")
        write_bytes(folder / "controlled_experiment.png", png(made))


REPRODUCTION = Reproduction(
    name="controlled",
    about=__doc__.splitlines()[0],
    settings=Settings,
    work=lambda options: run,
    table=table_of,
    draw=draw,
)

if __name__ == "__main__":
    sys.exit(REPRODUCTION.main())
