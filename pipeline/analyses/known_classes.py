"""Where a classifier knows the classes: does the uncertainty tell which of its guesses are wrong?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from pipeline.analyses._tables import contender_table
from pipeline.analyses.base import CollectionAnalysis, NotApplicable, Values
from pipeline.report.parts import Context, Part, Words

if TYPE_CHECKING:
    from pipeline.evaluation.collection import Collection
    from pipeline.metrics.undefined import Score


class KnownClasses(CollectionAnalysis):
    """AUROC and AURC of each contender for the guesses of the backbone's classifier, or of the out-of-fold probes."""

    title = "Wrong guesses of the classifier"
    about = (
        "AUROC: the probability that an image whose class is guessed wrongly is less certain than one that is guessed "
        "rightly; 0.5 is chance, higher is better. AURC and AUGRC as for retrieval, lower is better. The guesses are "
        "those of the backbone's own classifier, or of probes that never saw the image."
    )
    place = 25

    def measure(self, collection: Collection) -> Values:
        """Accuracy, rows; contender → numbers over seeds."""
        from pipeline.evaluation.collection import CENTER
        from pipeline.metrics.r_auroc import auroc
        from pipeline.metrics.selective import augrc, aurc

        known_N = np.isfinite(collection.chosen.column("task_loss", CENTER))
        if not known_N.any():
            raise NotApplicable("no classifier knows these classes")
        wrong_K = ~collection.chosen.column("top1_correct", CENTER)[known_N]

        def metrics(uncertainty_N: Any) -> Mapping[str, Score]:
            uncertainty_K = uncertainty_N[known_N]
            functions = {"auroc": auroc, "aurc": aurc, "augrc": augrc}
            return {name: function(uncertainty_K, wrong_K) for name, function in functions.items()}

        numbers = collection.over_seeds(lambda scores: metrics(scores.uncertainty[scores.primary]))
        return {"accuracy": float(1 - wrong_K.mean()), "rows": len(wrong_K), "numbers": numbers}

    def show(self, values: Values, context: Context) -> Iterator[Part]:
        """A table."""
        columns: Any = {"AUROC": ("auroc", "high"), "AURC": ("aurc", "low"), "AUGRC": ("augrc", "low")}
        yield contender_table(f"Wrong guesses on {context.title}", values["numbers"], columns, context)
        yield Words(text=f"{values['accuracy']:.1%} of {values['rows']:,} guesses are right.")
