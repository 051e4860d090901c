"""Safe retrieval: what refusing uncertain queries, and cleaning the database of uncertain images, does to the error."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pipeline.analyses._tables import contender_table
from pipeline.analyses.base import CollectionAnalysis, Needs, Values
from pipeline.report.parts import Context, Figure, Part

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

    from pipeline.evaluation.collection import Collection
    from pipeline.metrics.ranked import Ranked
    from pipeline.metrics.undefined import Score
    from pipeline.report.style import Theme

SHARE = 0.1
SHARES = (0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3)
COLUMNS: Any = {
    "Nothing": ("plain", ""),
    "Queries refused": ("queries", "low"),
    "Database cleaned": ("database", "low"),
    "Both": ("both", "low"),
}


class SafeRetrieval(CollectionAnalysis):
    """Of the primary uncertainty of each contender."""

    title = "Safe retrieval"
    about = (
        "Share of wrong answers when the least certain tenth is refused as queries, cleaned out of the database, "
        "or both, of each class or of all images; lower is better (Pretrained visual uncertainties, Sec. 5.2, "
        "Tab. 1). An image all of whose 20 nearest were cleaned away gets no answer."
    )
    place = 30
    needs = Needs(judged=True)

    def measure(self, collection: Collection) -> Values:
        """``{per_class, overall}``: contender → error numbers; contender → error at each share, of the seed shown."""
        labels = collection.result["counts"]["classes"] > 0
        per_class, overall, curves = {}, {}, {}
        for item in collection.present:
            ranked = {seed: collection.ranked(item.name, seed) for seed in item.seeds}
            asked = {seed: (ranked[seed], scores.uncertainty[scores.primary]) for seed, scores in item.seeds.items()}
            overall[item.name] = collection.numbers(_errors(*one, SHARE, by_class=False) for one in asked.values())
            if labels:
                per_class[item.name] = collection.numbers(_errors(*one, SHARE, by_class=True) for one in asked.values())
            shown = asked[item.shown_seed]
            found = (_errors(*shown, share, by_class=False)["both"] for share in SHARES)
            curves[item.name] = [value if isinstance(value, float) else None for value in found]
        return {"per_class": per_class, "overall": overall, "curves": curves}

    def show(self, values: Values, context: Context) -> Iterator[Part]:
        """The two tables, and the error against the share."""
        for key, of in (("per_class", "of each class"), ("overall", "of all images")):
            if values[key]:
                caption = f"Share of wrong answers on {context.judged}, the least certain tenth {of}"
                yield contender_table(caption, values[key], COLUMNS, context)
        yield Figure(
            caption="Wrong answers when so many of the least certain images are refused as queries and cleaned away."
            " Lower is better." + context.one_seed(values["curves"]) + context.look.left_out(list(values["curves"])),
            words=_in_words(values["curves"], context.title),
            draw=lambda theme: _draw(values["curves"], context, theme),
        )


def _errors(ranked: Ranked, uncertainty_N: Any, share: float, *, by_class: bool) -> Mapping[str, Score]:
    import numpy as np

    from pipeline.metrics.safe_retrieval import answers, least_certain

    nothing_N = np.zeros(len(uncertainty_N), dtype=bool)
    least_N = least_certain(uncertainty_N, share, ranked.label_N if by_class else None)
    return {
        "plain": answers(ranked, nothing_N, nothing_N).error,
        "queries": answers(ranked, least_N, nothing_N).error,
        "database": answers(ranked, nothing_N, least_N).error,
        "both": answers(ranked, least_N, least_N).error,
    }


def _draw(curves: Mapping[str, Any], context: Context, theme: Theme) -> Drawing:
    from matplotlib.ticker import PercentFormatter

    from pipeline.report.style import figure, legend

    made = figure(3.3)
    axes = made.subplots()
    names = context.look.drawn(list(curves))
    for name in names:
        curve = curves[name]
        known = [(share, value) for share, value in zip(SHARES, curve, strict=True) if value is not None]
        axes.plot(*zip(*known, strict=True), **context.look.line(name, theme))
    axes.set_ylim(bottom=0)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(PercentFormatter(1))
    axes.set_xlabel("refused and cleaned away, least certain first")
    axes.set_ylabel("wrong answers")
    legend(made, len(names))
    return made


def _in_words(curves: Mapping[str, Any], title: str) -> str:
    said = []
    for name, curve in curves.items():
        first, last = (f"{value:.1%}" if value is not None else "undefined" for value in (curve[0], curve[-1]))
        said.append(f"{name}: {first}, then {last}")
    return (
        f"Wrong answers on {title} with nothing and with {SHARES[-1]:.0%} refused and cleaned away. {'; '.join(said)}."
    )
