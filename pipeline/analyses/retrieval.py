"""How well an embedding finds images of the same class, and an uncertainty those it does not find, over k neighbours.

R@k, mAP@k and k-NN accuracy (formulas: metrics/ranked); R-AUROC where R@k judges (metrics/r_auroc).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pipeline.analyses._curves import curves_in_words, defined, draw_curves
from pipeline.analyses._tables import contender_table
from pipeline.analyses.base import CollectionAnalysis, Needs, Values
from pipeline.report.parts import Context, Figure, Part, Words

if TYPE_CHECKING:
    from pipeline.evaluation.collection import Collection
    from pipeline.evaluation.contenders import Scored
    from pipeline.metrics.ranked import Ranked
    from pipeline.metrics.undefined import Score
    from pipeline.report.style import Theme

KS = (1, 2, 3, 5, 10, 20)  # of the curves
TABLED = (1, 5, 10, 20)
VOTERS = 20
ALONE = "backbone alone"


class Retrieval(CollectionAnalysis):
    """R@k … of the representation alone and of embeddings of heads; R-AUROC at k of the primary uncertainty of each."""

    title = "Retrieval and k nearest neighbours"
    about = (
        "R@k: an image of the class is among the k nearest. mAP@k: mean precision at the places of such images, over "
        f"the k nearest. {VOTERS}-NN: the class that most of the {VOTERS} nearest have is right. R-AUROC at k: the "
        "probability that an image without one of its class among the k nearest is less certain than an image with "
        "one; at k = 1 it is the R-AUROC of all other tables, 0.5 is chance. Higher is better in all of them."
    )
    place = 20
    version = 2  # with R-AUROC at k; 1 had the embeddings alone
    needs = Needs(judged=True)

    def measure(self, collection: Collection) -> Values:
        """``embeddings``, ``scores``: contender → metric → numbers over seeds; ``counted``: rows that are judged."""
        embeddings = {ALONE: collection.numbers(iter([_metrics(collection.ranked())]))}
        for item in collection.with_own_embedding():
            embeddings[item.name] = collection.numbers(
                _metrics(collection.ranked(item.name, seed)) for seed in item.seeds
            )
        scores = {item.name: collection.numbers(_r_aurocs(collection, item)) for item in collection.present}
        return {"embeddings": embeddings, "scores": scores, "counted": int(collection.ranked().counted_N.sum())}

    def show(self, values: Values, context: Context) -> Iterator[Part]:
        """Both over k, then both as tables."""
        recall = _curves(values["embeddings"], "recall", _drawn(values["embeddings"], context))
        yield Figure(
            name="recall",
            caption="R@k of each embedding, over k; bands span the seeds. Higher is better."
            + context.look.left_out([name for name in values["embeddings"] if name != ALONE]),
            words=f"R@k on {context.title}. {curves_in_words(recall)}.",
            draw=lambda theme: draw_curves(recall, "R@k", lambda name, theme: _line(name, context, theme), theme),
        )
        r_auroc = _curves(values["scores"], "r_auroc", context.look.drawn(list(values["scores"])))
        if r_auroc:
            yield Figure(
                name="r_auroc",
                caption="R-AUROC of each uncertainty where R@k judges, over k; bands span the seeds. Higher is better, "
                "the thin line is chance." + context.look.left_out(list(values["scores"])),
                words=f"R-AUROC at k on {context.title}. {curves_in_words(r_auroc)}.",
                draw=lambda theme: draw_curves(r_auroc, "R-AUROC at k", context.look.line, theme, chance=0.5),
            )
        yield Words(text=_wrong(values))
        yield _table(f"Retrieval on {context.judged}", values["embeddings"], context)
        at_k: Any = {f"R-AUROC at {k}": (f"r_auroc_{k}", "high") for k in TABLED}
        yield contender_table(f"R-AUROC at k on {context.judged}", values["scores"], at_k, context)


def _table(caption: str, embeddings: Mapping[str, Any], context: Context) -> Part:
    columns = {
        **{f"R@{k}": f"recall_{k}" for k in TABLED},
        **{f"mAP@{k}": f"map_{k}" for k in TABLED[1:]},
        f"{VOTERS}-NN": "knn",
    }
    better: Any = {heading: (key, "high") for heading, key in columns.items()}
    return contender_table(caption, embeddings, better, context)


def _metrics(ranked: Ranked) -> Mapping[str, Score]:
    return {
        **{f"recall_{k}": ranked.recall_at(k) for k in KS},
        **{f"map_{k}": ranked.mean_average_precision_at(k) for k in TABLED[1:]},
        "knn": ranked.knn_accuracy(VOTERS),
    }


def _r_aurocs(collection: Collection, item: Scored) -> Iterator[Mapping[str, Score]]:
    from pipeline.metrics.r_auroc import r_auroc_at

    for seed, scores in item.seeds.items():
        ranked, uncertainty_N = collection.ranked(item.name, seed), scores.uncertainty[scores.primary]
        yield {f"r_auroc_{k}": r_auroc_at(uncertainty_N, ranked, k) for k in KS}


def _drawn(embeddings: Mapping[str, Any], context: Context) -> list[str]:
    return [ALONE, *context.look.drawn([name for name in embeddings if name != ALONE])]


def _curves(found: Mapping[str, Any], metric: str, names: Sequence[str]) -> dict[str, dict[int, Mapping[str, Any]]]:
    return defined({name: {k: found[name][f"{metric}_{k}"] for k in KS} for name in names})


def _line(name: str, context: Context, theme: Theme) -> Mapping[str, Any]:
    """The backbone is no contender and has a colour of its own."""
    return {"label": ALONE, "color": theme.ink, "linestyle": "-"} if name == ALONE else context.look.line(name, theme)


def _wrong(values: Values) -> str:
    """How many images each R-AUROC rests on."""
    counted, alone = values["counted"], values["embeddings"][ALONE]
    wrong = ", ".join(f"{round(counted * (1 - alone[f'recall_{k}']['median'])):,} (k = {k})" for k in KS)
    return (
        f"Images without one of their class among the k nearest, by the backbone alone, of {counted:,}: {wrong}. The "
        "fewer they are, the less an R-AUROC at k says."
    )
