"""Do the classes lie apart without being told? k-means with as many clusters as classes, and NMI with the classes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from pipeline.analyses._tables import contender_table
from pipeline.analyses.base import CollectionAnalysis, Needs, NotApplicable, Values
from pipeline.analyses.retrieval import ALONE
from pipeline.report.parts import Context, Part, Words

if TYPE_CHECKING:
    from pipeline.evaluation.collection import Collection

ROWS = 5000  # at most, so that it stays quick: evenly spread over the labelled ones
CLASSES = 1000
ROUNDS = 20  # of Lloyd's algorithm; it has mostly settled by then


class Clusters(CollectionAnalysis):
    """Of the representation alone, and of heads with an embedding of their own, at the seed that pictures show."""

    title = "Clusters and classes"
    about = (
        "NMI: mutual information of clusters and classes, divided by the mean of their entropies; 0: the clusters say "
        "nothing of the classes, 1: they are the classes. Higher is better."
    )
    place = 21
    version = 2  # at all seeds; 1 had one
    needs = Needs(judged=True)

    def measure(self, collection: Collection) -> Values:
        """Rows and classes that were clustered; contender → NMI."""
        label_N = collection.rows.label_N
        labelled_L = np.flatnonzero(label_N >= 0)
        row_R = labelled_L[np.unique(np.linspace(0, len(labelled_L) - 1, min(ROWS, len(labelled_L))).astype(int))]
        classes = len(np.unique(label_N[row_R]))
        if not 2 <= classes <= CLASSES:
            raise NotApplicable(
                f"there are {classes:,} classes; clusters are looked for where there are 2 to {CLASSES:,}"
            )
        cosine = collection.result["metric"] == "cosine"

        def nmi(embedding_NE: Any) -> dict[str, float]:
            return {"nmi": _nmi(embedding_NE[row_R], label_N[row_R], classes, cosine)}

        numbers = {ALONE: collection.numbers(iter([nmi(collection.rows.representation_ND)]))}
        for item in collection.with_own_embedding():
            numbers[item.name] = collection.numbers(nmi(collection.embedding(item.name, seed)) for seed in item.seeds)
        return {"rows": len(row_R), "classes": classes, "numbers": numbers}

    def show(self, values: Values, context: Context) -> Iterator[Part]:
        """A table, and how many rows it is of."""
        columns: Any = {"NMI": ("nmi", "high")}
        yield contender_table(f"NMI on {context.title}", values["numbers"], columns, context)
        yield Words(text=f"k-means of {values['rows']:,} images into {values['classes']:,} clusters, one start.")


def _nmi(embedding_RE: Any, label_R: Any, classes: int, cosine: bool) -> float:
    import warnings

    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.metrics import normalized_mutual_info_score
    from threadpoolctl import threadpool_limits

    row_RE = np.asarray(embedding_RE, dtype=np.float64)
    if cosine:
        row_RE = row_RE / np.maximum(np.linalg.norm(row_RE, axis=1, keepdims=True), 1e-12)
    with threadpool_limits(1), warnings.catch_warnings():  # threads add centres up in any order
        warnings.simplefilter("ignore", ConvergenceWarning)  # fewer distinct rows than clusters
        found = KMeans(n_clusters=classes, n_init=1, max_iter=ROUNDS, random_state=0).fit_predict(row_RE)
        return float(normalized_mutual_info_score(label_R, found))
