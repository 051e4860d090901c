"""Bars of one number over collections and contenders, from chance on, with whiskers over the seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pipeline.report.parts import Context

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

    from pipeline.report.style import Theme

CHANCE = 0.5
Numbers = Mapping[str, Mapping[str, Mapping[str, Any]]]  # title of a collection → contender → numbers over seeds


def draw_bars(numbers: Numbers, label: str, context: Context, theme: Theme) -> Drawing:
    """A group of bars for each collection; ``label`` of the axis."""
    from pipeline.report.style import figure, legend, legible

    names = _shown(numbers, context)
    step = len(names) + 1
    made = figure(0.6 + 0.2 * (len(numbers) * step + len(names) / 2))
    axes = made.subplots()
    for place, found in enumerate(numbers.values()):
        for name in names:
            if name in found and found[name]["median"] is not None:
                _bar(axes, place * step + names.index(name), found[name], context.look.colour(name, theme), theme)
    for name in names:
        axes.barh([0], [0], color=context.look.colour(name, theme), label=legible(name))
    axes.axvline(CHANCE, color=theme.ink, linewidth=0.9)
    middles = [place * step + (len(names) - 1) / 2 for place in range(len(numbers))]
    axes.set_yticks(middles, [legible(title).replace(" (", "\n(").replace("_", "_\u200b") for title in numbers])
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(len(numbers) * step - 1, -1)
    axes.set_xlim(
        *_limits([value for found in numbers.values() for item in found.values() for value in item["values"]])
    )
    axes.grid(visible=False, axis="y")
    axes.set_xlabel(f"{label} (0.5 = chance)")
    legend(made, len(names))
    return made


def _shown(numbers: Numbers, context: Context) -> list[str]:
    names = list(dict.fromkeys(name for found in numbers.values() for name in found))
    return context.look.drawn(names, len(numbers))


def bars_caption(numbers: Numbers, caption: str, context: Context) -> str:
    """The caption, how to read bars, and what is said where not all methods are drawn."""
    names = list(dict.fromkeys(name for found in numbers.values() for name in found))
    read = " Bars begin at chance and stand in the order of the legend; whiskers span the seeds. Higher is better."
    return caption + read + context.look.left_out(names, len(numbers))


def _bar(axes: Axes, y: float, numbers: Mapping[str, Any], colour: str, theme: Theme) -> None:
    median, values = numbers["median"], numbers["values"]
    axes.barh(y, median - CHANCE, left=CHANCE, height=0.82, color=colour)
    low, high = min(values), max(values)
    if low < high:
        axes.plot([low, high], [y, y], color=theme.ink, linewidth=1.1, marker="|", markersize=4.5)
    axes.annotate(
        f"{median:.3f}", (max(high, CHANCE), y), (4, 0), textcoords="offset points", va="center", fontsize=7.5
    )


def _limits(values: Sequence[float]) -> tuple[float, float]:
    low, high = min([*values, CHANCE]), max([*values, CHANCE + 0.05])
    span = high - low
    return low - 0.06 * span, high + 0.2 * span


def bars_in_words(numbers: Numbers, label: str) -> str:
    """The medians."""
    parts = []
    for title, found in numbers.items():
        known = {name: item["median"] for name, item in found.items() if item["median"] is not None}
        said = ", ".join(f"{name} {median:.3f}" for name, median in known.items())
        parts.append(f"{title}: {said or 'undefined'}")
    return f"Bars of {label}. " + "; ".join(parts) + "."
