"""How right the rows are that stay when the least certain are rejected: accuracy against coverage."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from pipeline.analyses.base import CollectionAnalysis, Needs, Values
from pipeline.report.parts import Context, Figure, Part

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

    from pipeline.evaluation.collection import Collection
    from pipeline.report.style import Theme


class Rejection(CollectionAnalysis):
    """Curves of the primary uncertainty of each contender, at the seed that pictures show."""

    title = "R@1 of the images that are kept"
    about = "The faster a curve rises towards the oracle, which rejects the wrong images first, the better."
    place = 11
    version = 2  # judged by the relation where there is one; 1 judged by the labels
    open = True
    needs = Needs(judged=True)

    def measure(self, collection: Collection) -> Values:
        """Contender → ``{rejected, accuracy}``: share rejected, R@1 of the rest; and R@1 of all, for the oracle."""
        from pipeline.metrics.selective import rejection_curve

        curves = {}
        for item in collection.present:
            curve = rejection_curve(*item.shown.judged())
            curves[item.name] = {"rejected": curve.rejected_P.tolist(), "accuracy": curve.accuracy_P.tolist()}
        return {"curves": curves, "recall_at_1": collection.result["recall_at_1"]["median"]}

    def show(self, values: Values, context: Context) -> Iterator[Part]:
        """All contenders in one plot."""
        yield Figure(
            caption=f"R@1 of the images that are kept when the least certain are rejected first, on {context.judged}."
            + context.one_seed(values["curves"])
            + context.look.left_out(list(values["curves"])),
            words=_in_words(values, context.title),
            draw=lambda theme: _draw(values, context, theme),
        )


def _draw(values: Values, context: Context, theme: Theme) -> Drawing:
    from matplotlib.ticker import PercentFormatter

    from pipeline.report.style import figure, legend

    made = figure(3.3)
    axes = made.subplots()
    names = context.look.drawn(list(values["curves"]))
    for name in names:
        curve = values["curves"][name]
        axes.plot(curve["rejected"], curve["accuracy"], **context.look.line(name, theme))
    rejected = np.linspace(0, 0.99, 200)
    oracle = np.minimum(1, values["recall_at_1"] / (1 - rejected))
    axes.plot(rejected, oracle, color=theme.ink, linestyle=(0, (1, 2)), linewidth=1.1, label="oracle")
    axes.set_xlim(0, 1)
    axes.set_ylim(top=1.005)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(PercentFormatter(1))
    axes.set_xlabel("rejected, least certain first")
    axes.set_ylabel("R@1 of those kept")
    legend(made, len(names) + 1)
    return made


def _in_words(values: Values, title: str) -> str:
    """R@1 when nothing, and when half is rejected."""
    said = []
    for name, curve in values["curves"].items():
        half = int(np.argmin(np.abs(np.array(curve["rejected"]) - 0.5)))
        said.append(f"{name}: {curve['accuracy'][0]:.1%}, then {curve['accuracy'][half]:.1%}")
    return f"R@1 on {title} with none and with the least certain half rejected. {'; '.join(said)}."
