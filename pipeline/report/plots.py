"""The plots, each a small function from results to a figure, and each with a text alternative from the same numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pipeline.report.style import Theme, figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CHANCE = 0.5
DASHES = ("-", (0, (5, 1.5)), (0, (3, 1, 1, 1)), (0, (1, 1)), (0, (6, 1, 1, 1, 1, 1)))

Result = Mapping[str, Any]


def colours(contenders: Sequence[Result], theme: Theme) -> dict[str, str]:
    """A colour for each contender, by its name."""
    baselines = [item["name"] for item in contenders if item["role"] == "baseline"]
    others = [item["name"] for item in contenders if item["role"] != "baseline"]
    pick = {name: theme.baselines[place % len(theme.baselines)] for place, name in enumerate(baselines)}
    return pick | {name: theme.series[place % len(theme.series)] for place, name in enumerate(others)}


def _r_auroc(item: Result) -> Mapping[str, Any]:
    numbers: Mapping[str, Any] = item["scores"][item["primary"]]["r_auroc"]
    return numbers


def _present(result: Result) -> list[Result]:
    return [item for item in result["contenders"] if "scores" in item]


# -- R-AUROC bars


def r_auroc_bars(results: Sequence[Result], theme: Theme) -> Figure:
    """R-AUROC of each collection and contender, from chance on; whiskers: least and greatest seed (App. D, Fig. 1)."""
    names = list(dict.fromkeys(item["name"] for result in results for item in _present(result)))
    pick = colours(list({item["name"]: item for result in results for item in _present(result)}.values()), theme)
    lines = len(results) * (len(names) + 1)
    made = figure(0.9 + 0.2 * lines)
    axes = made.subplots()
    for place, result in enumerate(results):
        for item in _present(result):
            numbers = _r_auroc(item)
            if numbers["median"] is not None:
                y = place * (len(names) + 1) + names.index(item["name"])
                _bar(axes, y, numbers, pick[item["name"]], theme)
    for name in names:
        axes.barh([0], [0], color=pick[name], label=name)
    axes.axvline(CHANCE, color=theme.ink, linewidth=0.9)
    middles = [place * (len(names) + 1) + (len(names) - 1) / 2 for place in range(len(results))]
    axes.set_yticks(middles, [result["dataset"] for result in results])
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(lines - 1, -1)
    axes.set_xlim(*_limits(results))
    axes.grid(visible=False, axis="y")
    axes.set_xlabel("R-AUROC (0.5 = chance)")
    made.legend(loc="outside upper center", ncols=2)
    return made


def _bar(axes: Axes, y: float, numbers: Mapping[str, Any], colour: str, theme: Theme) -> None:
    median, values = numbers["median"], numbers["values"]
    axes.barh(y, median - CHANCE, left=CHANCE, height=0.82, color=colour)
    low, high = min(values), max(values)
    if low < high:
        axes.plot([low, high], [y, y], color=theme.ink, linewidth=1.1, marker="|", markersize=4.5)
    axes.annotate(
        f"{median:.3f}", (max(high, CHANCE), y), (4, 0), textcoords="offset points", va="center", fontsize=7.5
    )


def _limits(results: Sequence[Result]) -> tuple[float, float]:
    values = [v for result in results for item in _present(result) for v in _r_auroc(item)["values"]] or [CHANCE]
    low, high = min([*values, CHANCE]), max([*values, CHANCE + 0.05])
    span = high - low
    return low - 0.06 * span, high + 0.2 * span


def bars_in_words(results: Sequence[Result]) -> str:
    """The bars as text."""
    parts = []
    for result in results:
        known = [(item["name"], _r_auroc(item)["median"]) for item in _present(result)]
        said = ", ".join(f"{name} {median:.3f}" for name, median in known if median is not None)
        parts.append(f"{result['dataset']}: {said or 'undefined'}")
    return "Bars of R-AUROC. " + "; ".join(parts) + "."


# -- uncertainty of right and wrong rows


def histograms(result: Result, names: Sequence[str], theme: Theme) -> Figure:
    """Uncertainty of rows with a right and with a wrong neighbour, each as share of its kind; a panel a contender."""
    from matplotlib.ticker import PercentFormatter

    items = [item for item in _present(result) if item["name"] in names]
    made = figure(0.8 + 1.55 * len(items))
    panels = np.atleast_1d(made.subplots(len(items), 1))
    for axes, item in zip(panels, items, strict=True):
        histogram = item["shown"]["histogram"]
        for kind, colour, dash in (("right", theme.right, "-"), ("wrong", theme.wrong, (0, (4, 1)))):
            counts = np.array(histogram[kind], dtype=float)
            share = counts / max(counts.sum(), 1)
            axes.stairs(share, histogram["edges"], fill=True, color=colour, alpha=0.28)
            label = f"{kind} neighbour ({int(counts.sum()):,})"
            axes.stairs(share, histogram["edges"], color=colour, linestyle=dash, linewidth=1.5, label=label)
        axes.set_title(item["name"])
        axes.yaxis.set_major_formatter(PercentFormatter(1))
        axes.grid(visible=False, axis="x")
    made.legend(*panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=2)
    made.supxlabel("uncertainty (higher = less sure)", fontsize=9.5)
    made.supylabel("share of its kind", fontsize=9.5)
    return made


def histograms_in_words(result: Result, names: Sequence[str]) -> str:
    """The histograms as text: the middle of each."""
    parts = []
    for item in _present(result):
        if item["name"] in names:
            histogram = item["shown"]["histogram"]
            right, wrong = (_middle(histogram["edges"], histogram[kind]) for kind in ("right", "wrong"))
            parts.append(
                f"{item['name']}: median about {right} where the neighbour is right, {wrong} where it is wrong"
            )
    return f"Histograms of uncertainty on {result['dataset']}. " + "; ".join(parts) + "."


def _middle(edges: Sequence[float], counts: Sequence[int]) -> str:
    if not sum(counts):
        return "nothing"
    place = int(np.searchsorted(np.cumsum(counts), sum(counts) / 2))
    return f"{(edges[place] + edges[place + 1]) / 2:.3g}"


# -- accuracy against rejected share


def rejection_curves(result: Result, theme: Theme) -> Figure:
    """R@1 of the rows kept when the least certain are rejected first; dotted: an oracle rejects the wrong first."""
    from matplotlib.ticker import PercentFormatter

    made = figure(3.3)
    axes = made.subplots()
    pick = colours(result["contenders"], theme)
    items = _present(result)
    for place, item in enumerate(items):
        curve = item["shown"]["rejection"]
        style = DASHES[place % len(DASHES)]
        axes.plot(curve["rejected"], curve["accuracy"], color=pick[item["name"]], linestyle=style, label=item["name"])
    recall = result["recall_at_1"]["median"]
    if recall is not None:
        rejected = np.linspace(0, 0.99, 200)
        oracle = np.minimum(1, recall / (1 - rejected))
        axes.plot(rejected, oracle, color=theme.ink, linestyle=(0, (1, 2)), linewidth=1.1, label="oracle")
    axes.set_xlim(0, 1)
    axes.set_ylim(top=1.005)
    axes.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    axes.set_xlabel("rejected, least certain first")
    axes.set_ylabel("R@1 of those kept")
    made.legend(loc="outside upper center", ncols=2)
    return made


def rejection_in_words(result: Result) -> str:
    """The curves as text: R@1 when nothing, and when half is rejected."""
    parts = []
    for item in _present(result):
        curve = item["shown"]["rejection"]
        if curve["rejected"]:
            half = int(np.argmin(np.abs(np.array(curve["rejected"]) - 0.5)))
            parts.append(f"{item['name']}: {curve['accuracy'][0]:.1%}, then {curve['accuracy'][half]:.1%}")
    said = "; ".join(parts) or "nothing is counted"
    return f"R@1 on {result['dataset']} with none and with the least certain half rejected. {said}."
