"""Is a head unsure where people were? Rank correlation with the entropy of annotators' votes (URL, Sec. 4.6)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pipeline.analyses.base import CollectionAnalysis, NotApplicable, Values
from pipeline.report.parts import Cell, Context, Figure, Part, Table, Words, number

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

    from pipeline.evaluation.collection import Collection
    from pipeline.report.style import Theme


class Annotators(CollectionAnalysis):
    """Of the primary uncertainty of each contender, on the images that people voted on."""

    title = "Agreement with people"
    about = (
        "Rank correlation of the uncertainty with the entropy of the annotators' votes, and AUROC of the images on "
        "which they were not of one mind (several classes, or none), ½ by chance; higher is better. "
        "(Kirchhof et al., URL, 2023, Sec. 4.6; Pretrained Visual Uncertainties, 2024, Sec. 4.5.)"
    )
    place = 62

    def measure(self, collection: Collection) -> Values:
        """``{rows, voted, ambiguous, contenders: {name: {rank_correlation, auroc}}}``, numbers over seeds."""
        from pipeline.metrics.agreement import annotator_entropy, rank_correlation
        from pipeline.metrics.r_auroc import auroc

        known = collection.annotations
        if known is None or known.votes_NA is None:
            raise NotApplicable("nobody voted on the images, or the votes are not known")
        votes_NA = known.votes_NA
        voted_N = votes_NA.sum(axis=1) > 0
        ambiguous_N = (votes_NA > 0).sum(axis=1) != 1
        entropy_V = annotator_entropy(votes_NA[voted_N])

        def of(scores: Any) -> dict[str, Any]:
            uncertainty_N = scores.uncertainty[scores.primary]
            return {
                "rank_correlation": rank_correlation(uncertainty_N[voted_N], entropy_V),
                "auroc": auroc(uncertainty_N, ambiguous_N),
            }

        counts = {"rows": len(voted_N), "voted": int(voted_N.sum()), "ambiguous": int(ambiguous_N.sum())}
        return {**counts, "contenders": collection.over_seeds(of)}

    def show(self, values: Values, context: Context) -> Iterator[Part]:
        """Counts, a table, and bars."""
        yield Words(
            text=f"People voted on {values['voted']:,} of {values['rows']:,} images of {context.title}; on "
            f"{values['ambiguous']:,} they were not of one mind, or found no class that fits."
        )
        rows = [
            [Cell(text=name, value=name), number(found["rank_correlation"], signed=True), number(found["auroc"])]
            for name, found in values["contenders"].items()
        ]
        columns = ("Score", "Rank correlation", "AUROC of ambiguous images")
        yield Table(caption=f"Agreement with the annotators of {context.title}", columns=columns, rows=rows)
        if any(found["rank_correlation"]["median"] is not None for found in values["contenders"].values()):
            yield Figure(
                caption="Rank correlation with the entropy of the votes; dots are seeds.",
                words=_in_words(values),
                draw=lambda theme: _draw(values, context, theme),
            )


def _draw(values: Values, context: Context, theme: Theme) -> Drawing:
    from pipeline.report.style import figure, legible

    names = list(values["contenders"])[::-1]
    made = figure(0.8 + 0.28 * len(names))
    axes = made.subplots()
    for place, name in enumerate(names):
        found = values["contenders"][name]["rank_correlation"]
        axes.barh(place, found["median"] or 0, color=context.look.colour(name, theme), height=0.6)
        axes.plot(found["values"], [place] * len(found["values"]), "o", color=theme.ink, markersize=2.5)
    axes.set_yticks(range(len(names)), [legible(name) for name in names])
    axes.axvline(0, color=theme.ink, linewidth=0.8)
    axes.set_xlabel("rank correlation with the entropy of the votes")
    axes.grid(visible=False, axis="y")
    return made


def _in_words(values: Values) -> str:
    said = [
        f"{name} {'undefined' if (median := found['rank_correlation']['median']) is None else f'{median:+.3f}'}"
        for name, found in values["contenders"].items()
    ]
    return f"Rank correlation with the entropy of the annotators' votes: {', '.join(said)}."
