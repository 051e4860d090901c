"""Where the uncertainties lie of rows with a right and of rows with a wrong neighbour (thesis, Fig. 8)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pipeline.analyses.base import CollectionAnalysis, Needs, Values
from pipeline.report.parts import Context, Figure, Part

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

    from pipeline.evaluation.collection import Collection
    from pipeline.report.style import Theme

BINS = 40


class Histograms(CollectionAnalysis):
    """Of the primary uncertainty of each contender, at the seed that pictures show."""

    title = "Uncertainty of right and wrong images"
    about = "The further the two lie apart, the better the uncertainty tells them."
    place = 10
    version = 2  # judged by the relation where there is one; 1 judged by the labels
    open = True
    needs = Needs(judged=True)

    def measure(self, collection: Collection) -> Values:
        """Contender → ``{edges, right, wrong}``: edges of the bins, rows in each."""
        return {item.name: _counts(*item.shown.judged()) for item in collection.present}

    def show(self, values: Values, context: Context) -> Iterator[Part]:
        """One panel for the head, one for the entropy."""
        shown = context.look.main(list(values))
        yield Figure(
            caption="Uncertainty of images whose nearest neighbour is of their class (right) and of those where it is "
            "not, each as share of its kind." + context.one_seed(shown) + context.look.panels(list(values)),
            words=_in_words(values, shown, context.title),
            draw=lambda theme: _draw(values, shown, theme),
        )


def _counts(uncertainty_C: Any, wrong_C: Any) -> dict[str, list[float]]:
    edges = _edges(float(uncertainty_C.min()), float(uncertainty_C.max()))
    right, wrong = (np.histogram(uncertainty_C[part_C], bins=edges)[0].tolist() for part_C in (~wrong_C, wrong_C))
    return {"edges": edges.tolist(), "right": right, "wrong": wrong}


def _edges(low: float, high: float) -> Any:
    """Of bins from the least to the largest value; around it, where there is but one."""
    size = max(abs(low), abs(high))
    if high - low < BINS * np.spacing(size):  # fewer numbers lie between them than there are bins
        low, high = low - max(size, 1.0) / 2, high + max(size, 1.0) / 2
    return np.linspace(low, high, BINS + 1)


def _draw(values: Values, names: Sequence[str], theme: Theme) -> Drawing:
    from matplotlib.ticker import PercentFormatter

    from pipeline.report.style import figure, legible

    made = figure(0.8 + 1.55 * len(names))
    panels = np.atleast_1d(made.subplots(len(names), 1))
    for axes, name in zip(panels, names, strict=True):
        histogram = values[name]
        for kind, colour, dash in (("right", theme.right, "-"), ("wrong", theme.wrong, (0, (4, 1)))):
            counts = np.array(histogram[kind], dtype=float)
            share = counts / max(counts.sum(), 1)
            axes.stairs(share, histogram["edges"], fill=True, color=colour, alpha=0.28)
            label = f"{kind} neighbour ({int(counts.sum()):,})"
            axes.stairs(share, histogram["edges"], color=colour, linestyle=dash, linewidth=1.5, label=label)
        axes.set_title(legible(name))
        axes.yaxis.set_major_formatter(PercentFormatter(1))
        axes.grid(visible=False, axis="x")
    made.legend(*panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=2)
    made.supxlabel("uncertainty (higher = less sure)", fontsize=9.5)
    made.supylabel("share of its kind", fontsize=9.5)
    return made


def _in_words(values: Values, names: Sequence[str], title: str) -> str:
    said = []
    for name in names:
        right, wrong = (_middle(values[name], kind) for kind in ("right", "wrong"))
        said.append(f"{name}: median about {right} where the neighbour is right, {wrong} where it is wrong")
    return f"Histograms of uncertainty on {title}. " + "; ".join(said) + "."


def _middle(histogram: Mapping[str, Any], kind: str) -> str:
    counts, edges = histogram[kind], histogram["edges"]
    if not sum(counts):
        return "nothing"
    place = int(np.searchsorted(np.cumsum(counts), sum(counts) / 2))
    return f"{(edges[place] + edges[place + 1]) / 2:.3g}"
