"""Does the uncertainty say how well retrieval goes? ECE@k over its percentiles (Warburg et al., Eq. 14)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pipeline.analyses._tables import contender_table
from pipeline.analyses.base import CollectionAnalysis, Needs, Values
from pipeline.report.parts import Context, Figure, Part

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

    from pipeline.evaluation.collection import Collection
    from pipeline.metrics.calibration import Reliability
    from pipeline.report.style import Theme

KS = (1, 5, 10)
DRAWN = 5


class Calibration(CollectionAnalysis):
    """Of the primary uncertainty of each contender, against AP@k of each image."""

    title = "Calibration of retrieval"
    about = (
        "ECE@k: the images are cut into ten bins of certainty; mean difference between the AP@k of a bin and its "
        "percentile (Warburg et al., Bayesian triplet loss, Eq. 14). Lower is better, as far as AP@k spans 0 to 1: an "
        "uncertainty has no unit here, so a collection that is easy throughout is off whatever it says."
    )
    place = 23
    version = 2  # judged by the relation where there is one; 1 judged by the labels
    needs = Needs(judged=True)

    def measure(self, collection: Collection) -> Values:
        """Contender → ECE@k over seeds; contender → reliability curve of AP@5 of the seed shown."""
        numbers, curves = {}, {}
        for item in collection.present:
            numbers[item.name] = collection.numbers(
                {f"ece_{k}": _reliability(collection, item.name, seed, k).error for k in KS} for seed in item.seeds
            )
            curve = _reliability(collection, item.name, item.shown_seed, DRAWN)
            curves[item.name] = {"confidence": curve.confidence_B.tolist(), "outcome": curve.outcome_B.tolist()}
        return {"numbers": numbers, "curves": curves}

    def show(self, values: Values, context: Context) -> Iterator[Part]:
        """The table and the curves."""
        columns: Any = {f"ECE@{k}": (f"ece_{k}", "low") for k in KS}
        yield contender_table(f"Calibration on {context.judged}", values["numbers"], columns, context)
        shown = context.look.main(list(values["curves"]))
        yield Figure(
            caption=f"Reliability: mean AP@{DRAWN} of ten bins of certainty, the least certain at the left; on the "
            "dotted line it is calibrated." + context.one_seed(shown) + context.look.panels(list(values["curves"])),
            words=_in_words(values["curves"], shown, context.title),
            draw=lambda theme: _draw(values["curves"], shown, context, theme),
        )


def _reliability(collection: Collection, name: str, seed: int, k: int) -> Reliability:
    from pipeline.metrics.calibration import retrieval_reliability

    scores = next(item.seeds[seed] for item in collection.present if item.name == name)
    precision_N = collection.ranked(name, seed).average_precision_at(k)
    return retrieval_reliability(scores.judged()[0], precision_N[scores.retrieval.counted_N])


def _draw(curves: Mapping[str, Any], names: Sequence[str], context: Context, theme: Theme) -> Drawing:
    from pipeline.report.style import figure, legend

    made = figure(3.3)
    axes = made.subplots()
    axes.plot([0, 1], [0, 1], color=theme.ink, linestyle=(0, (1, 2)), linewidth=1.1, label="calibrated")
    for name in names:
        line = context.look.line(name, theme)
        axes.plot(curves[name]["confidence"], curves[name]["outcome"], marker="o", markersize=4, **line)
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1.02)
    axes.set_xlabel("share of the images that are less certain")
    axes.set_ylabel(f"mean AP@{DRAWN}")
    legend(made, len(names) + 1)
    return made


def _in_words(curves: Mapping[str, Any], names: Sequence[str], title: str) -> str:
    said = [f"{name}: {curves[name]['outcome'][0]:.3f} to {curves[name]['outcome'][-1]:.3f}" for name in names]
    return f"Mean AP@{DRAWN} on {title} from the least to the most certain tenth. {'; '.join(said)}."
