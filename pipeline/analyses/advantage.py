"""Is a head better than the classifier's entropy by more than chance? R-AUROC less the entropy's, and its interval."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from pipeline.analyses.base import CollectionAnalysis, Needs, NotApplicable, Values
from pipeline.report.look import ENTROPY
from pipeline.report.parts import Cell, Context, Figure, Part, Table, number

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

    from pipeline.evaluation.collection import Collection
    from pipeline.evaluation.contenders import Scored
    from pipeline.evaluation.scoring import SeedScores
    from pipeline.metrics.bootstrap import Interval
    from pipeline.metrics.undefined import Score, Undefined
    from pipeline.report.style import Theme

DRAWS = 500
LEVEL = 0.95


class Advantage(CollectionAnalysis):
    """Of each contender, over all its seeds."""

    title = "Advantage over the classifier's entropy"
    about = (
        "R-AUROC less that of the entropy at the same seed: median over seeds, and their larger distance from it. "
        f"From, to: where this median lies in {LEVEL:.0%} of {DRAWS} collections that are drawn anew from these "
        "images, all scores on the same draw (paired bootstrap). Above 0 the score is better than the entropy; an "
        "interval that spans 0 says that these images cannot tell which is."
    )
    place = 31
    version = 3  # over all seeds, 2 had the one that pictures show; 2: judged by the relation where there is one
    needs = Needs(judged=True, contenders=2)

    def measure(self, collection: Collection) -> Values:
        """Contender → ``{advantage: numbers over seeds, low, high, undefined}``."""
        from pipeline.metrics.undefined import Undefined

        entropy = next((item for item in collection.present if item.name == ENTROPY), None)
        if entropy is None:
            raise NotApplicable("there is no classifier over this representation, so no entropy")
        told = {
            item["name"]: item["advantage_over_entropy"] for item in collection.result["contenders"] if item["seeds"]
        }
        others = [item for item in collection.present if item is not entropy]
        found: dict[str, dict[str, Any]] = {}
        for item in others:
            advantage = told[item.name]
            found[item.name] = {"advantage": advantage, "low": None, "high": None, "undefined": advantage["undefined"]}
        known = [item for item in others if told[item.name]["median"] is not None]  # so each seed has its entropy
        for item, interval in zip(known, _intervals(known, entropy), strict=True):
            if isinstance(interval, Undefined):
                found[item.name]["undefined"] = interval.reason
            else:
                found[item.name] |= {"low": interval.low, "high": interval.high}
        return found

    def show(self, values: Values, context: Context) -> Iterator[Part]:
        """A plot and a table."""
        rows = []
        for name, found in values.items():
            ends = [
                number({"median": found[key], "distance": 0, "undefined": found["undefined"]}, signed=True)
                for key in ("low", "high")
            ]
            rows.append([Cell(text=name, value=name), number(found["advantage"], signed=True), *ends])
        columns = ("Score", "− entropy", f"{LEVEL:.0%} from", "to")
        known = {name: found for name, found in values.items() if found["low"] is not None}
        said = [
            f"{name} {f['advantage']['median']:+.3f} ({f['low']:+.3f} to {f['high']:+.3f})" for name, f in known.items()
        ]
        if known:
            yield Figure(
                caption=f"R-AUROC less that of the entropy, on {context.judged}. Dots: medians over seeds; "
                f"thick lines: their {LEVEL:.0%} intervals over images; thin lines: the seeds. To the right is better.",
                words=f"Advantage over the entropy on {context.title}: {'; '.join(said)}.",
                draw=lambda theme: _draw(known, context, theme),
            )
        yield Table(caption=f"Advantage over the entropy on {context.judged}", columns=columns, rows=rows)


def _intervals(items: Sequence[Scored], entropy: Scored) -> list[Interval | Undefined]:
    """Of each of ``items``; the draws, and the entropy's R-AUROC on them, are the same for all."""
    from pipeline.metrics.bootstrap import bootstrap_all, median_difference, remembered

    rows = entropy.shown.retrieval.counted
    times = remembered(partial(np.bincount, minlength=rows))
    theirs = {id(scores): remembered(_metric(scores, times)) for scores in entropy.seeds.values()}
    differences = [
        median_difference(
            [(_metric(scores, times), theirs[id(entropy.at(seed))]) for seed, scores in item.seeds.items()]
        )
        for item in items
    ]
    return bootstrap_all(differences, rows, draws=DRAWS, level=LEVEL)


def _metric(scores: SeedScores, times: Callable[[Any], Any]) -> Callable[[Any], Score]:
    """R-AUROC of drawn rows. The order of the values is found once: each draw only counts, so it takes no sorting.

    Args:
        scores: of all rows.
        times: drawn rows → (C,) how often each row is among them.
    """
    from pipeline.metrics.undefined import Undefined

    uncertainty_C, wrong_C = scores.judged()
    order_C = np.argsort(uncertainty_C, kind="stable")
    sorted_C, wrong_C = uncertainty_C[order_C], wrong_C[order_C]
    first_P = np.flatnonzero(np.append(True, sorted_C[1:] != sorted_C[:-1])) if len(order_C) else order_C  # of equals

    def r_auroc(row_D: Any) -> Score:
        times_C = times(row_D)[order_C]
        wrong = int((bad_C := times_C * wrong_C).sum())
        right = int(times_C.sum()) - wrong
        if not wrong or not right:
            return Undefined(f"needs right and wrong neighbours: {right} right, {wrong} wrong")
        wrong_P, right_P = bad_C, times_C - bad_C
        if len(first_P) < len(order_C):
            wrong_P, right_P = np.add.reduceat(wrong_P, first_P), np.add.reduceat(right_P, first_P)
        return float(wrong_P @ (np.cumsum(right_P) - right_P / 2) / (wrong * right))

    return r_auroc


def _draw(known: Values, context: Context, theme: Theme) -> Drawing:
    from pipeline.report.style import figure, legible

    made = figure(0.75 + 0.3 * len(known))
    axes = made.subplots()
    for place, (name, found) in enumerate(known.items()):
        colour = context.look.colour(name, theme)
        seeds = found["advantage"]["values"]
        axes.plot([found["low"], found["high"]], [place, place], color=colour, linewidth=4, solid_capstyle="butt")
        axes.plot([min(seeds), max(seeds)], [place + 0.28] * 2, color=theme.ink, linewidth=1, marker="|", markersize=4)
        axes.plot([found["advantage"]["median"]], [place], color=theme.ink, marker="o", markersize=5)
    axes.axvline(0, color=theme.ink, linewidth=0.9)
    axes.set_yticks(range(len(known)), [legible(name) for name in known], fontsize=8.5)
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(len(known) - 0.5, -0.5)
    axes.grid(visible=False, axis="y")
    axes.set_xlabel("R-AUROC less that of the entropy")
    return made
