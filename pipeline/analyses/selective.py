"""What is gained by leaving out the least certain images (formulas: metrics/selective)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pipeline.analyses._tables import contender_table
from pipeline.analyses.base import CollectionAnalysis, Needs, Values
from pipeline.report.parts import Context, Figure, Part

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

    from pipeline.evaluation.collection import Collection
    from pipeline.evaluation.scoring import SeedScores
    from pipeline.metrics.undefined import Score
    from pipeline.report.style import Theme

K = 5
COVERAGES = (0.9, 0.5)
ACCURACIES = (0.95, 0.99)
POINTS = 101


class Selective(CollectionAnalysis):
    """Of the primary uncertainty of each contender."""

    title = "Selective prediction and sparsification"
    about = (
        "AURC and AUGRC: areas under risk and generalised risk against coverage, E-AURC: less the best possible order; "
        f"lower is better. AUSC: mean AP@{K} of the images kept, over all shares kept, and R@1 of those kept when 10 % "
        "or half are rejected; higher is better. Share to reject for an R@1 of 95 % or 99 %; lower is better."
    )
    place = 22
    version = 2  # judged by the relation where there is one; 1 judged by the labels
    needs = Needs(judged=True)

    def measure(self, collection: Collection) -> Values:
        """Contender → metric → numbers over seeds; contender → curve of AP@k of the kept, of the seed shown."""
        from pipeline.metrics.selective import sparsification_curve

        numbers, curves = {}, {}
        for item in collection.present:
            values = {seed: _precision(collection, item.name, seed, scores) for seed, scores in item.seeds.items()}
            numbers[item.name] = collection.numbers(
                _metrics(scores, values[seed]) for seed, scores in item.seeds.items()
            )
            uncertainty_C, _ = item.shown.judged()
            curve_C = sparsification_curve(uncertainty_C, values[item.shown_seed])
            kept_P = np.unique(np.linspace(1, len(curve_C), min(POINTS, len(curve_C))).astype(int))[::-1]
            curves[item.name] = {
                "rejected": (1 - kept_P / len(curve_C)).tolist(),
                "precision": curve_C[kept_P - 1].tolist(),
            }
        return {"numbers": numbers, "curves": curves}

    def show(self, values: Values, context: Context) -> Iterator[Part]:
        """The table and the sparsification curves."""
        columns: Any = {
            **{heading: (key, "low") for heading, key in (("AURC", "aurc"), ("E-AURC", "e_aurc"), ("AUGRC", "augrc"))},
            f"AUSC, AP@{K}": ("ausc", "high"),
            **{f"R@1 of {share:.0%}": (f"accuracy_{share:g}", "high") for share in COVERAGES},
            **{f"Rejected for {share:.0%}": (f"abstention_{share:g}", "low") for share in ACCURACIES},
        }
        yield contender_table(f"Selective prediction on {context.judged}", values["numbers"], columns, context)
        yield Figure(
            caption=f"Sparsification: mean AP@{K} of the images that are kept when the least certain are rejected."
            " Higher is better." + context.one_seed(values["curves"]) + context.look.left_out(list(values["curves"])),
            words=_in_words(values["curves"], context.title),
            draw=lambda theme: _draw(values["curves"], context, theme),
        )


def _precision(collection: Collection, name: str, seed: int, scores: SeedScores) -> Any:
    return collection.ranked(name, seed).average_precision_at(K)[scores.retrieval.counted_N]


def _metrics(scores: SeedScores, precision_C: Any) -> Mapping[str, Score]:
    from pipeline.metrics.selective import abstention_for, accuracy_at, augrc, aurc, ausc, e_aurc

    judged = scores.judged()
    return {
        "aurc": aurc(*judged),
        "e_aurc": e_aurc(*judged),
        "augrc": augrc(*judged),
        "ausc": ausc(judged[0], precision_C),
        **{f"accuracy_{share:g}": accuracy_at(*judged, coverage=share) for share in COVERAGES},
        **{f"abstention_{share:g}": abstention_for(*judged, accuracy=share) for share in ACCURACIES},
    }


def _draw(curves: Mapping[str, Any], context: Context, theme: Theme) -> Drawing:
    from matplotlib.ticker import PercentFormatter

    from pipeline.report.style import figure, legend

    made = figure(3.3)
    axes = made.subplots()
    names = context.look.drawn(list(curves))
    for name in names:
        axes.plot(curves[name]["rejected"], curves[name]["precision"], **context.look.line(name, theme))
    axes.set_xlim(0, 1)
    axes.xaxis.set_major_formatter(PercentFormatter(1))
    axes.set_xlabel("rejected, least certain first")
    axes.set_ylabel(f"AP@{K} of those kept")
    legend(made, len(names))
    return made


def _in_words(curves: Mapping[str, Any], title: str) -> str:
    said = []
    for name, curve in curves.items():
        values: Sequence[float] = curve["precision"]
        half = int(np.argmin(np.abs(np.array(curve["rejected"]) - 0.5)))
        said.append(f"{name}: {values[0]:.3f}, then {values[half]:.3f}")
    return f"Mean AP@{K} on {title} with none and with the least certain half rejected. {'; '.join(said)}."
