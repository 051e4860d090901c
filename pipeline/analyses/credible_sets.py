"""Uncertain retrieval: all images that a query may mean, not only the nearest (MCInfoNCE, thesis App. B, C.5).

For scores that are the spread 1/κ of a posterior on the sphere. Regions, sets and their sizes: metrics/credible.

Shape suffixes: N rows, M rows of the database, Q queries, E width of the embedding.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pipeline.analyses._tables import contender_table
from pipeline.analyses.base import CollectionAnalysis, Needs, NotApplicable, Values
from pipeline.report.parts import Context, Part, Words

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pipeline.evaluation.collection import Collection
    from pipeline.evaluation.rows import Rows
    from pipeline.evaluation.scoring import SeedScores
    from pipeline.metrics.undefined import Score

SPREAD = "inverse_concentration"  # the score 1/κ
LEVELS = (0.5, 0.9, 0.99)
LEVEL = 0.9  # of what is said besides sizes
SIZE = f"size_{LEVEL:g}"
QUERIES = 500


class CredibleSets(CollectionAnalysis):
    """Of the contenders whose score is the spread of a posterior on the sphere."""

    title = "Credible sets (uncertain retrieval)"
    about = (
        "A query's credible set is every other image inside the smallest region that holds 50, 90 or 99 % of its "
        "posterior vMF(μ, κ): a query that may mean much brings many. Sizes are medians over the queries. An ambiguous "
        "query, whose nearest image is of another class or on which people disagreed, should have a larger set than "
        "others. In hundreds of dimensions regions are sharp: within a factor of two of κ a set can go from empty to "
        "everything, so look at both. (Kirchhof et al., MCInfoNCE, 2023, App. C.5.)"
    )
    place = 33
    needs = Needs(judged=True)

    def measure(self, collection: Collection) -> Values:
        """``{queries, database, votes, numbers}``: contender → sizes and shares over seeds."""
        import numpy as np

        posteriors = [item for item in collection.present if item.shown.primary == SPREAD]
        if not posteriors:
            raise NotApplicable(
                "no score is the spread 1/κ of a posterior on the sphere, as that of mc_info_nce or elk is"
            )
        relevance = collection.rows.relevance
        found_M = np.arange(len(collection.rows.keys)) if relevance is None else np.flatnonzero(relevance.found_N)
        numbers, queries = {}, 0
        for item in posteriors:
            of_seeds = []
            for seed, scores in item.seeds.items():
                row_Q = _some(np.flatnonzero(scores.retrieval.counted_N))
                queries = len(row_Q)
                of_seeds.append(_seed(collection, scores, collection.embedding(item.name, seed), row_Q, found_M))
            numbers[item.name] = collection.numbers(iter(of_seeds))
        voted = collection.annotations is not None and collection.annotations.votes_NA is not None
        return {"queries": queries, "database": len(found_M), "votes": voted, "numbers": numbers}

    def show(self, values: Values, context: Context) -> Iterator[Part]:
        """How many were asked for, and a table."""
        yield Words(
            text=f"{values['queries']:,} of the judged images of {context.title} are queries, evenly from all of them; "
            f"{values['database']:,} images may be found."
        )
        everything = [name for name, of in values["numbers"].items() if of[SIZE]["median"] >= values["database"] - 1]
        if everything:
            yield Words(
                text=f"Most sets of {', '.join(everything)} at {LEVEL:.0%} are the whole database: κ is so small that "
                "no direction in which there are images lies outside. Such sets tell no query from another; the order "
                "of the uncertainties may."
            )
        columns: Any = {
            **{f"Median size at {level:.0%}": (f"size_{level:g}", "") for level in LEVELS},
            f"Empty at {LEVEL:.0%}": ("empty", ""),
            f"With a relevant image at {LEVEL:.0%}": ("relevant", ""),
            "Median size, nearest right": ("right", ""),
            "Median size, nearest wrong": ("wrong", ""),
        }
        if values["votes"]:
            columns["Rank correlation with the votes' entropy"] = ("votes", "high")
        yield contender_table(f"Credible sets on {context.judged}", values["numbers"], columns, context)


def _some(row_C: NDArray[Any]) -> NDArray[Any]:
    """At most :data:`QUERIES`, evenly: all seeds and contenders ask for the same ones."""
    import numpy as np

    return row_C[np.linspace(0, len(row_C) - 1, min(QUERIES, len(row_C))).astype(np.int64)]


def _seed(
    collection: Collection, scores: SeedScores, embedding_NE: NDArray[Any], row_Q: NDArray[Any], found_M: NDArray[Any]
) -> Mapping[str, Score]:
    import numpy as np

    from pipeline.metrics.credible import credible_sets, credible_sizes, vmf_regions

    database_ME = embedding_NE[found_M]
    place_Q = np.searchsorted(found_M, row_Q)
    there_Q = found_M[np.minimum(place_Q, len(found_M) - 1)] == row_Q
    own_Q, kappa_Q = np.where(there_Q, place_Q, -1), 1 / scores.uncertainty[SPREAD][row_Q]
    size_LQ, relevant_Q = {}, np.zeros(len(row_Q), dtype=bool)
    for level in LEVELS:
        regions = vmf_regions(embedding_NE[row_Q], kappa_Q, level=level)
        if level != LEVEL:
            size_LQ[level] = credible_sizes(regions, database_ME, own_Q=own_Q)
            continue
        size_LQ[level] = np.zeros(len(row_Q), dtype=np.int64)
        for query, inside in enumerate(credible_sets(regions, database_ME, own_Q=own_Q)):
            size_LQ[level][query] = len(inside)
            relevant_Q[query] = _any_relevant(collection.rows, int(row_Q[query]), found_M[inside])
    right_Q, size_Q = scores.retrieval.correct_N[row_Q], size_LQ[LEVEL]
    return {
        **{f"size_{level:g}": float(np.median(of)) for level, of in size_LQ.items()},
        "empty": float((size_Q == 0).mean()),
        "relevant": float(relevant_Q.mean()),
        "right": _median(size_Q[right_Q], "right"),
        "wrong": _median(size_Q[~right_Q], "wrong"),
        "votes": _with_votes(collection, row_Q, size_Q),
    }


def _median(size_Q: NDArray[Any], which: str) -> Score:
    import numpy as np

    from pipeline.metrics.undefined import Undefined

    return float(np.median(size_Q)) if len(size_Q) else Undefined(f"no query has a {which} nearest image")


def _any_relevant(rows: Rows, query: int, row_R: NDArray[Any]) -> bool:
    import numpy as np

    if rows.relevance is None:
        return bool((rows.label_N[row_R] == rows.label_N[query]).any())
    return bool(rows.relevance.relevant(np.full(len(row_R), query), row_R).any())


def _with_votes(collection: Collection, row_Q: NDArray[Any], size_Q: NDArray[Any]) -> Score:
    from pipeline.metrics.agreement import annotator_entropy
    from pipeline.metrics.credible import size_by_ambiguity
    from pipeline.metrics.undefined import Undefined

    known = collection.annotations
    if known is None or known.votes_NA is None:
        return Undefined("nobody voted on the images, or the votes are not known")
    voted_Q = known.votes_NA[row_Q].sum(axis=1) > 0
    if not voted_Q.any():
        return Undefined("nobody voted on a query")
    entropy_Q = annotator_entropy(known.votes_NA[row_Q[voted_Q]])
    return size_by_ambiguity(size_Q[voted_Q], entropy_Q).rank_correlation
