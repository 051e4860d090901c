"""Conformal retrieval sets: so many nearest images that one of them is relevant, with a promised probability.

How many depends on the query's uncertainty: queries are sorted into bins by it, and each bin gets the number that it
needs (Mondrian conformal prediction, Vovk et al., 2005), so that the promise holds for certain and for uncertain
queries. A good uncertainty asks for few images where they are enough.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pipeline.analyses._tables import contender_table
from pipeline.analyses.base import CollectionAnalysis, Needs, NotApplicable, Values
from pipeline.report.parts import Cell, Context, Part, Table

if TYPE_CHECKING:
    from pipeline.evaluation.collection import Collection
    from pipeline.metrics.ranked import Ranked

MISS = 0.1
BINS = 5
LEAST = 20  # calibration images of a bin


class ConformalSets(CollectionAnalysis):
    """Of the primary uncertainty of each contender."""

    title = "Conformal retrieval sets"
    about = (
        f"Sets of nearest images of which one is relevant with a probability of {1 - MISS:.0%}. Their size is set "
        f"on one half of the images (by a hash of their keys) in each of {BINS} bins of uncertainty; coverage and "
        "mean size are those of the other half. The coverage should be at least what was promised; of two scores "
        "that keep the promise the one with smaller sets is better. The fixed size does not look at the "
        "uncertainty."
    )
    place = 32
    needs = Needs(judged=True)

    def measure(self, collection: Collection) -> Values:
        """``{numbers, bins}``: contender → coverage, sizes; contender → ``[{size, tried, covered}]``."""
        from pipeline.metrics.guarantees import calibration_half

        half_N = calibration_half(collection.rows.keys)
        counted_N = collection.ranked().counted_N
        if min((half_N & counted_N).sum(), (~half_N & counted_N).sum()) < BINS * LEAST:
            raise NotApplicable(f"half of the judged images is less than {BINS * LEAST}, too few for {BINS} bins")
        numbers, bins = {}, {}
        for item in collection.present:
            found = {
                seed: _sets(collection.ranked(item.name, seed), scores.uncertainty[scores.primary], half_N)
                for seed, scores in item.seeds.items()
            }
            numbers[item.name] = collection.numbers(one[0] for one in found.values())
            bins[item.name] = found[item.shown_seed][1]
        return {"numbers": numbers, "bins": bins}

    def show(self, values: Values, context: Context) -> Iterator[Part]:
        """All contenders, and the bins of the main ones."""
        columns: Any = {
            "Coverage": ("coverage", ""),
            "Mean size": ("size", "low"),
            "Fixed size": ("fixed", ""),
            "Worst bin's coverage": ("worst", ""),
        }
        yield contender_table(f"Conformal sets on {context.judged}", values["numbers"], columns, context)
        for name in context.look.main(list(values["bins"])):
            rows = [_line(place, one) for place, one in enumerate(values["bins"][name], start=1)]
            heads = ("Uncertainty", "Size of the set", "Tried", "Coverage", "95 % interval")
            caption = f"Bins of {name} on {context.title}, the most certain first.{context.one_seed([name])}"
            yield Table(caption=caption, columns=heads, rows=rows)


def _sets(ranked: Ranked, uncertainty_N: Any, half_N: Any) -> tuple[dict[str, Any], list[Mapping[str, Any]]]:
    import numpy as np

    from pipeline.metrics.guarantees import conformal_rank
    from pipeline.metrics.undefined import Undefined

    known = ranked.relevant_NC.shape[1]
    rank_N = np.where(ranked.relevant_NC.any(axis=1), ranked.relevant_NC.argmax(axis=1) + 1, 0)
    set_N, tried_N = ranked.counted_N & half_N, ranked.counted_N & ~half_N
    edges = np.quantile(uncertainty_N[set_N], np.arange(1, BINS) / BINS)
    bin_N = np.searchsorted(edges, uncertainty_N, side="left")
    bins: list[Mapping[str, Any]] = []
    for place in range(BINS):
        size = conformal_rank(rank_N[set_N & (bin_N == place)], MISS)
        rank_T = rank_N[tried_N & (bin_N == place)]
        finite = bool(np.isfinite(size))
        covered = int(((rank_T > 0) & (rank_T <= size)).sum()) if finite else len(rank_T)
        bins.append({"size": int(size) if finite else None, "tried": len(rank_T), "covered": covered})
    tried = sum(one["tried"] for one in bins)
    open_ended = [one for one in bins if one["size"] is None and one["tried"]]
    beyond = Undefined(f"in {len(open_ended)} of {BINS} bins {known} images are not enough")
    fixed = conformal_rank(rank_N[set_N], MISS)
    numbers = {
        "coverage": sum(one["covered"] for one in bins) / tried,
        "size": beyond if open_ended else sum(one["tried"] * (one["size"] or 0) for one in bins) / tried,
        "fixed": fixed if np.isfinite(fixed) else Undefined(f"{known} images are not enough"),
        "worst": min(one["covered"] / one["tried"] for one in bins if one["tried"]),
    }
    return numbers, bins


def _line(place: int, one: Mapping[str, Any]) -> list[Cell]:
    from pipeline.metrics.guarantees import error_interval

    size, tried, covered = one["size"], one["tried"], one["covered"]
    name = f"fifth {place}"
    cells = [Cell(text=name, value=place), Cell(text=f"{size}" if size else "all", value=size or float("inf"))]
    cells.append(Cell(text=f"{tried:,}", value=tried))
    if not tried:
        return [*cells, Cell(text="–"), Cell(text="–")]
    low, high = error_interval(covered, tried)
    return [
        *cells,
        Cell(text=f"{covered / tried:.3f}", value=covered / tried),
        Cell(text=f"{low:.3f} to {high:.3f}", value=low),
    ]
