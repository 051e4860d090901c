"""R-AUROC where upstream and downstream images are mixed, half and half (URL, App. C.5)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pipeline.analyses._bars import bars_caption, bars_in_words, draw_bars
from pipeline.analyses._tables import comparison_table, with_mean
from pipeline.analyses.base import Comparison, NotApplicable, Values
from pipeline.analyses.ood import UPSTREAM
from pipeline.report.parts import Context, Figure, Part, Words

if TYPE_CHECKING:
    from pipeline.evaluation.collection import Collection
    from pipeline.evaluation.scoring import SeedScores
    from pipeline.metrics.retrieval import Retrieval
    from pipeline.metrics.undefined import Score

ROWS = 2500  # of each half at most, so that it stays quick: evenly spread over the labelled ones


class Mixture(Comparison):
    """Of the primary uncertainty of each contender, at each seed."""

    title = "R-AUROC on mixtures"
    about = (
        "As many upstream as downstream images in one collection, their classes apart, neighbours sought among all: "
        "does the uncertainty also compare images that the head was trained on with those that it was not? 0.5 is "
        "chance, higher is better (URL, App. C.5, which reports the mean over the datasets)."
    )
    place = 2
    version = 3  # none where a relation judges, 2 took the labels there; 2: all seeds, 1 had one

    def compare(self, collections: Sequence[Collection]) -> Values:
        """Downstream collection that labels judge → rows; contender → numbers."""
        if len(collections) < 2 or collections[0].id != UPSTREAM:
            raise NotApplicable("it takes the upstream dataset and another one")
        judged = [one for one in collections if one.annotations is None or one.annotations.relevance is None]
        if len(judged) < 2 or judged[0].id != UPSTREAM:
            raise NotApplicable("where a relation says what is relevant, it says nothing of images of two datasets")
        return {other.id: _mixed(judged[0], other) for other in judged[1:]}

    def show(self, values: Values, context: Context) -> Iterator[Part]:
        """A plot and a table."""
        titled = with_mean({title: found["numbers"] for title, found in context.titled(values).items()})
        bars = {title: {name: item["r_auroc"] for name, item in found.items()} for title, found in titled.items()}
        yield Figure(
            caption=bars_caption(bars, "R-AUROC on half upstream, half downstream images.", context),
            words=bars_in_words(bars, "R-AUROC on mixtures"),
            draw=lambda theme: draw_bars(bars, "R-AUROC on mixtures", context, theme),
        )
        columns: Any = {"R-AUROC": ("r_auroc", "high"), "R@1": ("recall", "high")}
        yield comparison_table("R-AUROC on mixtures", titled, columns, context)
        said = ", ".join(f"{title}: {found['rows']:,} of each" for title, found in context.titled(values).items())
        yield Words(text=f"Images: {said}.")


def _mixed(upstream: Collection, other: Collection) -> Mapping[str, Any]:
    from pipeline.metrics.r_auroc import r_auroc
    from pipeline.metrics.retrieval import retrieve

    pair = (upstream, other)
    labelled = [np.flatnonzero(one.rows.label_N >= 0) for one in pair]
    count = min(ROWS, *(len(rows) for rows in labelled))
    rows = [_spread(found, count) for found in labelled]
    first = len(upstream.rows.class_names)
    label_M = np.concatenate([upstream.rows.label_N[rows[0]], first + other.rows.label_N[rows[1]]])
    found: dict[str, Retrieval] = {}
    numbers = {}
    theirs = {item.name: item for item in other.present}

    def of_seed(name: str, seed: int, scores: Sequence[SeedScores]) -> dict[str, Score]:
        digest = "".join(one.embedding_sha256 for one in scores)
        if digest not in found:
            embedding_ME = np.concatenate([one.embedding(name, seed)[row] for one, row in zip(pair, rows, strict=True)])
            metric, device = upstream.result["metric"], upstream.sources.device
            found[digest] = retrieve(embedding_ME, label_M, metric=metric, device=device)
        uncertainty_M = np.concatenate(
            [one.uncertainty[one.primary][row] for one, row in zip(scores, rows, strict=True)]
        )
        return {"r_auroc": r_auroc(uncertainty_M, found[digest]), "recall": found[digest].recall_at_1}

    for item in upstream.present:
        others = theirs[item.name].seeds if item.name in theirs else {}
        both = [of_seed(item.name, seed, [item.seeds[seed], others[seed]]) for seed in item.seeds if seed in others]
        if both:
            numbers[item.name] = upstream.numbers(iter(both))
    return {"rows": count, "numbers": numbers}


def _spread(row_N: Any, count: int) -> Any:
    """``count`` of the rows, evenly spread."""
    return row_N[np.linspace(0, len(row_N) - 1, count).astype(int)] if count else row_N[:0]
