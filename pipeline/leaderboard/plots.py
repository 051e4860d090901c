"""The plots of a leaderboard, each with the same said in words.

R@1 against R-AUROC (URL, Fig. 4), bars of R-AUROC (*Pretrained visual uncertainties*, App. D, Fig. 1), and where the
uncertainties lie of right and wrong images (thesis, Fig. 8), from what the analysis ``histograms`` of each run stored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pipeline.leaderboard.entries import Board, Entry
from pipeline.report.look import DASHES, MARKS
from pipeline.report.parts import Figure
from pipeline.report.style import Theme, figure, legend, legible

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

CHANCE = 0.5
PANELS = 24  # histograms of a dataset, those with the highest R-AUROC
Counts = Mapping[str, Sequence[float]]  # edges of the bins, and images in each: right, wrong


def scatter(board: Board) -> Figure:
    """Each entry a point: how good its embedding is, and how good its uncertainty."""
    points = {
        entry: (entry.average(board.datasets, "recall_at_1"), entry.average(board.datasets, "r_auroc"))
        for entry in board.entries
        if entry.average(board.datasets, "r_auroc")["median"] is not None
    }
    said = (
        f"{entry.label}: R@1 {recall['median']:.3f}, R-AUROC {auroc['median']:.3f}"
        for entry, (recall, auroc) in points.items()
    )
    return Figure(
        name="scatter",
        caption="R@1 against R-AUROC, means over the datasets; crosses span the seeds. Up and to the right is better.",
        words=f"R@1 and R-AUROC. {'; '.join(said)}.",
        draw=lambda theme: _draw_scatter(board, points, theme),
    )


def _draw_scatter(board: Board, points: Mapping[Entry, Any], theme: Theme) -> Drawing:
    methods = list(dict.fromkeys(entry.name for entry in board.entries))
    numbered = len(methods) > len(_colours(theme))  # a colour would stand for several
    made = figure(5.6 if numbered else 3.6)
    axes = made.subplots()
    backbones = list(dict.fromkeys(entry.backbone for entry in board.entries))
    for entry, (recall, auroc) in points.items():
        x, y = recall["median"], auroc["median"]
        colour = _colour(methods.index(entry.name), theme)
        for ends, line in ((recall["values"], "x"), (auroc["values"], "y")):
            span = [min(ends), max(ends)]
            axes.plot(*((span, [y, y]) if line == "x" else ([x, x], span)), color=colour, linewidth=1.1)
        mark = MARKS[backbones.index(entry.backbone) % len(MARKS)]
        hollow = theme.ground if entry.role == "baseline" else colour
        axes.plot([x], [y], mark, color=colour, markerfacecolor=hollow, markersize=6.5)
    if numbered:
        _number(axes, points, methods)
    for place, name in enumerate(methods):
        label = f"{place + 1}  {legible(name)}" if numbered else legible(name)
        axes.plot([], [], "o", color=_colour(place, theme), label=label)
    for place, name in enumerate(backbones if len(backbones) > 1 else []):
        axes.plot([], [], MARKS[place % len(MARKS)], color=theme.ink, markerfacecolor=theme.ground, label=legible(name))
    axes.axhline(CHANCE, color=theme.ink, linewidth=0.9, linestyle=DASHES[3])
    axes.margins(0.12)
    axes.set_xlabel("R@1")
    axes.set_ylabel("R-AUROC (0.5 = chance)")
    legend(made, len(methods) + (len(backbones) if len(backbones) > 1 else 0))
    return made


def _number(axes: Axes, points: Mapping[Entry, Any], methods: Sequence[str]) -> None:
    """The number of each point's method beside it; of points above each other to the right and left in turn."""
    upwards = sorted(points, key=lambda entry: [numbers["median"] for numbers in points[entry]])
    for place, entry in enumerate(upwards):
        side = 1 if place % 2 else -1
        axes.annotate(
            str(methods.index(entry.name) + 1),
            tuple(numbers["median"] for numbers in points[entry]),
            (side * 5, 0),
            textcoords="offset points",
            ha="left" if side > 0 else "right",
            va="center",
            fontsize=6.5,
        )


def _colours(theme: Theme) -> tuple[str, ...]:
    return (*theme.series, *theme.baselines)


def _colour(place: int, theme: Theme) -> str:
    colours = _colours(theme)
    return colours[place % len(colours)]


def bars(board: Board) -> Figure:
    """R-AUROC of each entry, its mean over the datasets, and a dot for each of them."""
    found = [(entry, entry.average(board.datasets, "r_auroc")) for entry in board.entries]
    known = [(entry, numbers) for entry, numbers in found if numbers["median"] is not None]
    said = ", ".join(f"{entry.label} {numbers['median']:.3f}" for entry, numbers in known)
    return Figure(
        name="bars",
        caption="R-AUROC, mean over the datasets, from chance on; lines span the seeds, dots are the datasets.",
        words=f"Bars of R-AUROC: {said or 'none is defined'}.",
        draw=lambda theme: _draw_bars(board, known, theme),
    )


def _draw_bars(board: Board, known: Sequence[tuple[Entry, Any]], theme: Theme) -> Drawing:
    made = figure(0.9 + 0.3 * len(known))
    axes = made.subplots()
    for place, (entry, numbers) in enumerate(known):
        median, values = numbers["median"], numbers["values"]
        colour = theme.baselines[0] if entry.role == "baseline" else theme.series[0]
        axes.barh(place, median - CHANCE, left=CHANCE, height=0.7, color=colour)
        axes.plot([min(values), max(values)], [place, place], color=theme.ink, linewidth=1.1)
        each = [entry.numbers(dataset, "r_auroc")["median"] for dataset in board.datasets]
        if len(each) > 1:
            axes.plot(each, [place] * len(each), "o", color=theme.ink, markersize=3, alpha=0.7)
        axes.annotate(
            f"{median:.3f}",
            (max([*values, *(each if len(each) > 1 else []), CHANCE]), place),
            (6, 0),
            textcoords="offset points",
            va="center",
            fontsize=8,
        )
    axes.axvline(CHANCE, color=theme.ink, linewidth=0.9)
    axes.set_yticks(
        range(len(known)), [f"{legible(entry.name)}\n{legible(entry.backbone)}" for entry, _ in known], fontsize=7.5
    )
    axes.tick_params(axis="y", length=0)
    axes.invert_yaxis()
    axes.margins(x=0.14)
    axes.grid(visible=False, axis="y")
    axes.set_xlabel("R-AUROC (0.5 = chance)")
    return made


def histograms(dataset: str, found: Mapping[Entry, Counts]) -> Figure:
    """One small panel an entry: shares of right and of wrong images at each uncertainty."""
    shown = dict(list(found.items())[:PANELS])
    said = "; ".join(f"{entry.label}: {_middles(counts)}" for entry, counts in shown.items())
    more = f" The {PANELS} with the highest R-AUROC of {len(found)}." if len(found) > len(shown) else ""
    return Figure(
        name=f"histograms_{dataset}",
        caption=f"Uncertainty of images of {dataset} whose nearest neighbour is of their class (right) or not (wrong), "
        f"each as share of its kind.{more}",
        words=f"Medians of uncertainty on {dataset}. {said}.",
        draw=lambda theme: _draw_histograms(shown, theme),
    )


def _draw_histograms(shown: Mapping[Entry, Counts], theme: Theme) -> Drawing:
    rows = -(-len(shown) // 2)
    made = figure(0.6 + 1.35 * rows)
    panels = made.subplots(rows, 2, squeeze=False).ravel()
    for axes, (entry, counts) in zip(panels, shown.items(), strict=False):
        _panel(axes, counts, theme)
        axes.set_title(
            "\n".join(legible(name) for name in (entry.name, entry.backbone)),
            fontsize=7,
        )
    for axes in panels[len(shown) :]:
        axes.set_axis_off()
    made.legend(*panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=2)
    made.supxlabel("uncertainty (higher = less sure)", fontsize=9.5)
    return made


def _panel(axes: Axes, counts: Counts, theme: Theme) -> None:
    for kind, colour, dash in (("right", theme.right, "-"), ("wrong", theme.wrong, DASHES[1])):
        share = np.array(counts[kind], dtype=float) / max(sum(counts[kind]), 1)
        axes.stairs(share, counts["edges"], fill=True, color=colour, alpha=0.28)
        axes.stairs(share, counts["edges"], color=colour, linestyle=dash, linewidth=1.3, label=kind)
    axes.set_yticks([])
    axes.tick_params(labelsize=7.5)


def _middles(counts: Counts) -> str:
    said = []
    for kind in ("right", "wrong"):
        total = sum(counts[kind])
        place = int(np.searchsorted(np.cumsum(counts[kind]), total / 2))
        middle = (counts["edges"][place] + counts["edges"][place + 1]) / 2 if total else None
        said.append(f"{kind} {middle:.3g}" if middle is not None else f"none {kind}")
    return ", ".join(said)
