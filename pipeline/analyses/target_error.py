"""Selective prediction at a target error: a threshold with a guarantee from one half, tried on the other half."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pipeline.analyses._tables import contender_table
from pipeline.analyses.base import CollectionAnalysis, Needs, NotApplicable, Values
from pipeline.report.parts import Context, Part, Words

if TYPE_CHECKING:
    from pipeline.evaluation.collection import Collection
    from pipeline.evaluation.scoring import SeedScores
    from pipeline.metrics.undefined import Score

TARGETS = (0.02, 0.05, 0.1)
RISK = 0.05
LEAST = 40  # judged images of a half: with fewer no error below .07 can be promised


class TargetError(CollectionAnalysis):
    """Of the primary uncertainty of each contender."""

    title = "Kept at a target error"
    about = (
        "On one half of the images (by a hash of their keys) the threshold is set that keeps most images so that, with "
        "95 % confidence, at most so many of the kept have a wrong neighbour (Learn then test, Angelopoulos et al., "
        "2021). On the other half: share that is kept, higher is better, and the error among the kept, which should "
        "not exceed the target."
    )
    place = 31
    version = 2  # judged by the relation where there is one; 1 judged by the labels
    needs = Needs(judged=True)

    def measure(self, collection: Collection) -> Values:
        """``{calibration, test, numbers}``: judged images of each half, contender → kept and error at each target."""
        from pipeline.metrics.guarantees import calibration_half

        half_N = calibration_half(collection.rows.keys)
        counted_N = collection.present[0].shown.retrieval.counted_N
        halves = {"calibration": int((half_N & counted_N).sum()), "test": int((~half_N & counted_N).sum())}
        if min(halves.values()) < LEAST:
            raise NotApplicable(f"half of the judged images is less than {LEAST}, too few to promise anything")
        return {**halves, "numbers": collection.over_seeds(lambda scores: _kept(scores, half_N))}

    def show(self, values: Values, context: Context) -> Iterator[Part]:
        """A table of the shares kept and of the errors."""
        columns: Any = {}
        for target in TARGETS:
            columns[f"Kept at {target:.0%}"] = (f"kept_{target:g}", "high")
            columns[f"Error at {target:.0%}"] = (f"error_{target:g}", "")
        yield contender_table(f"Kept at a target error on {context.title}", values["numbers"], columns, context)
        yield Words(text=f"Set on {values['calibration']:,} images, tried on {values['test']:,} others.")


def _kept(scores: SeedScores, half_N: Any) -> Mapping[str, Score]:
    from pipeline.metrics.guarantees import guaranteed_threshold
    from pipeline.metrics.undefined import Undefined

    uncertainty_N, retrieval = scores.uncertainty[scores.primary], scores.retrieval
    set_N, tried_N = retrieval.counted_N & half_N, retrieval.counted_N & ~half_N
    found: dict[str, Score] = {}
    for target in TARGETS:
        wrong_N = ~retrieval.correct_N
        limit = guaranteed_threshold(uncertainty_N[set_N], wrong_N[set_N], target=target, risk=RISK).uncertainty
        kept_N = tried_N & (uncertainty_N <= limit)
        found[f"kept_{target:g}"] = float(kept_N.sum() / tried_N.sum())
        nothing = Undefined(f"no image can be kept at an error of {target:.0%}")
        found[f"error_{target:g}"] = float(wrong_N[kept_N].mean()) if kept_N.any() else nothing
    return found
