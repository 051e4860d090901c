"""Lines over k, the neighbours that are looked at: the median over seeds, and a band from minimum to maximum."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pipeline.report.look import MARKS

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

    from pipeline.report.style import Theme

Curves = Mapping[str, Mapping[int, Mapping[str, Any]]]  # line → k → numbers over seeds


def defined(curves: Curves) -> dict[str, dict[int, Mapping[str, Any]]]:
    """The points that are defined, of the lines that have one."""
    found = {name: {k: item for k, item in line.items() if item["median"] is not None} for name, line in curves.items()}
    return {name: line for name, line in found.items() if line}


def draw_curves(
    curves: Curves,
    label: str,
    look: Callable[[str, Theme], Mapping[str, Any]],
    theme: Theme,
    *,
    chance: float | None = None,
) -> Drawing:
    """All lines in one plot, each with a mark of its own.

    Args:
        curves: as :func:`defined` gives them; the medians, and all values for the bands.
        label: of the axis upwards.
        look: line, theme → colour, line style and label, as ``Look.line`` gives them.
        theme: the colours.
        chance: what an uncertainty that says nothing has, drawn as a thin line.
    """
    from pipeline.report.style import figure, legend

    made = figure(3.3)
    axes = made.subplots()
    for place, (name, line) in enumerate(curves.items()):
        style = look(name, theme)
        values = [item["values"] for item in line.values()]
        lowest, highest = [min(of) for of in values], [max(of) for of in values]
        axes.fill_between(list(line), lowest, highest, color=style["color"], alpha=0.18, linewidth=0)
        medians = [item["median"] for item in line.values()]
        axes.plot(list(line), medians, marker=MARKS[place % len(MARKS)], markersize=4, **style)
    if chance is not None:
        axes.axhline(chance, color=theme.ink, linewidth=0.9)
    ks: Sequence[int] = sorted({k for line in curves.values() for k in line})
    axes.set_xscale("log")
    axes.minorticks_off()
    axes.set_xticks(ks, [str(k) for k in ks])
    axes.set_xlabel("k nearest neighbours (logarithmic)")
    axes.set_ylabel(label)
    legend(made, len(curves))
    return made


def curves_in_words(curves: Curves) -> str:
    """The medians at each k."""
    said = {name: [f"{item['median']:.3f} at {k}" for k, item in line.items()] for name, line in curves.items()}
    return "; ".join(f"{name}: {', '.join(points)}" for name, points in said.items())
