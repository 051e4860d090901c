"""Does the uncertainty tell images of other classes from those of the upstream dataset? (Formulas: metrics/ood.)"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pipeline.analyses._bars import bars_caption, bars_in_words, draw_bars
from pipeline.analyses._tables import comparison_table, with_mean
from pipeline.analyses.base import Comparison, NotApplicable, Values
from pipeline.report.parts import Context, Figure, Part, Words

if TYPE_CHECKING:
    from pipeline.evaluation.collection import Collection
    from pipeline.metrics.undefined import Score

UPSTREAM = "upstream"


class Ood(Comparison):
    """The primary uncertainty of each contender: upstream rows are known, those of a downstream dataset strangers."""

    title = "Strangers"
    about = (
        "An image of a downstream dataset is a stranger to a head that was trained upstream. AUROC: the probability "
        "that a stranger is less certain than an upstream image, 0.5 by chance. AUPRC: average precision, by chance "
        "the share of strangers. Higher is better in both. FPR95: share of the upstream images that are taken for "
        "strangers where 95 % of the strangers are found; lower is better (URL, App. C.4). "
        "It is another question than how well an embedding works: a good uncertainty of a stranger may be low."
    )
    place = 1

    def compare(self, collections: Sequence[Collection]) -> Values:
        """Downstream collection → contender → numbers over seeds."""
        if len(collections) < 2 or collections[0].id != UPSTREAM:
            raise NotApplicable("it takes the upstream dataset and another one")
        upstream = {item.name: item for item in collections[0].present}
        found = {}
        for other in collections[1:]:
            found[other.id] = {
                item.name: other.numbers(
                    _metrics(upstream[item.name].seeds[seed], scores) for seed, scores in item.seeds.items()
                )
                for item in other.present
                if item.name in upstream
            }
        return found

    def show(self, values: Values, context: Context) -> Iterator[Part]:
        """A plot and a table."""
        titled = with_mean(context.titled(values))
        auroc = {title: {name: item["auroc"] for name, item in found.items()} for title, found in titled.items()}
        yield Figure(
            caption=bars_caption(auroc, "AUROC of strangers against upstream images.", context),
            words=bars_in_words(auroc, "AUROC of strangers"),
            draw=lambda theme: draw_bars(auroc, "AUROC of strangers", context, theme),
        )
        columns: Any = {"AUROC": ("auroc", "high"), "AUPRC": ("auprc", "high"), "FPR95": ("fpr95", "low")}
        yield comparison_table("Strangers against upstream images", titled, columns, context)
        yield Words(text=_counts(context))


def _counts(context: Context) -> str:
    upstream, *others = (result["counts"]["rows"] for result in context.results)
    titles = [result["dataset"] for result in context.results[1:]]
    said = (
        f"{rows:,} of {title} (share of strangers {rows / (rows + upstream):.3f})"
        for title, rows in zip(titles, others, strict=True)
    )
    return f"Images: {upstream:,} upstream; {', '.join(said)}."


def _metrics(known: Any, stranger: Any) -> Mapping[str, Score]:
    from pipeline.metrics.ood import detection

    found = detection(known.uncertainty[known.primary], stranger.uncertainty[stranger.primary])
    return {"auroc": found.auroc, "auprc": found.auprc, "fpr95": found.fpr95}
