"""How an uncertainty answers to what is done to an image, ever more strongly (thesis Ch. 5, Sec. 4.5, Fig. 6)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pipeline.analyses._violins import counted, draw_violins
from pipeline.analyses.base import CollectionAnalysis, Needs, Values
from pipeline.report.parts import Cell, Context, Figure, Part, Table, Words, number

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

    from pipeline.evaluation.collection import Collection
    from pipeline.report.style import Theme

KINDS = ("blur", "box", "noise", "zoom", "jpeg", "crop")
MARKS = dict(zip(KINDS, ("o", "s", "^", "D", "v", "x"), strict=True))


class Interventions(CollectionAnalysis):
    """Of the primary uncertainty of each contender: its distribution and median at each strength, and how well it
    tells the changed images from the unchanged."""

    title = "Responses to interventions"
    about = (
        "The more an image is blurred, covered, … the less sure a head should be: the median should rise at each step. "
        "AUROC of the changed images against the unchanged, ½ by chance, higher is better. What is done at which "
        "strength, and after whom, is said in pipeline/images/interventions.py."
    )
    place = 61
    version = 2  # counts and quartiles of each view; 1 had the quartiles of the unchanged alone
    needs = Needs(views=tuple(f"{kind}_" for kind in KINDS))

    def measure(self, collection: Collection) -> Values:
        """``{rows, views: {kind: names, weakest first}, contenders: {name: {kind: …}}}``.

        Of each kind, at the seed that is shown, of ``center`` and of each view: ``counts`` in the bins of ``range``,
        and ``quartiles``, the median between them. ``auroc``: a list of numbers over seeds, of each view; ``rises``: a
        truth value a seed; ``falls_at``: at the seed that is shown, the first view whose median is below that before,
        or null.
        """
        views = {kind: _views(kind, collection.views) for kind in KINDS}
        views = {kind: names for kind, names in views.items() if names}
        found = {item.name: _contender(collection, item, views) for item in collection.present}
        return {"rows": len(collection.changed.keys), "views": views, "contenders": found}

    def show(self, values: Values, context: Context) -> Iterator[Part]:
        """What is not monotone, a table, the curves, and the violins of those that have a panel."""
        names = context.look.main(list(values["contenders"]))
        yield Words(text=_not_monotone(values, names, context.title))
        kinds = list(values["views"])
        rows = [
            [Cell(text=name, value=name), *(_cell(found[kind]) for kind in kinds)]
            for name, found in values["contenders"].items()
        ]
        caption = (
            f"AUROC of the strongest intervention against the unchanged view on {values['rows']:,} images of "
            f"{context.title}; ↯: the median does not rise at each step, with each seed"
        )
        yield Table(caption=caption, columns=("Score", *kinds), rows=rows)
        yield Figure(
            caption="Median uncertainty against the strength, as share of the way between the quartiles of the "
            "unchanged images (0 and 1); above 1, half of the changed are less sure than three quarters of these. "
            "A line that rises at each step is what is hoped for."
            + context.one_seed(names)
            + context.look.panels(list(values["contenders"])),
            words=_in_words(values, names),
            draw=lambda theme: _draw(values, names, theme),
        )
        for place, name in enumerate(names):
            yield _violins(values, name, context, f"violins_{place}" if place else "violins")


def _views(kind: str, views: Sequence[str]) -> list[str]:
    """Views of a kind, the weakest first."""
    from pipeline.images.interventions import STRENGTHS

    ordered = [f"{kind}_{number}" for number in STRENGTHS[kind] if (kind, number) != ("crop", 100)]
    return [name for name in ordered if name in views]


def _contender(collection: Collection, item: Any, views: Mapping[str, list[str]]) -> dict[str, Any]:
    from pipeline.metrics.aggregate import plain_numbers
    from pipeline.metrics.agreement import response
    from pipeline.metrics.ood import detection

    said: dict[int, dict[str, Any]] = {}
    for seed in item.seeds:
        said[seed] = {}
        for view in ("center", *(name for names in views.values() for name in names)):
            scores = collection.score_view(item.name, seed, view)
            said[seed][view] = scores.uncertainty[scores.primary]
    found: dict[str, Any] = {}
    for kind, names in views.items():
        answers = {seed: response([of["center"], *(of[name] for name in names)]) for seed, of in said.items()}
        shown = answers[item.shown_seed]
        found[kind] = {
            **counted([said[item.shown_seed][name] for name in ("center", *names)]),
            "auroc": [
                plain_numbers([detection(of["center"], of[name]).auroc for of in said.values()]) for name in names
            ],
            "rises": [answer.rises for answer in answers.values()],
            "falls_at": None if shown.falls_at is None else names[shown.falls_at - 1],
        }
    return found


def _cell(found: Mapping[str, Any]) -> Cell:
    cell = number(found["auroc"][-1])
    if all(found["rises"]):
        return cell
    return Cell(text=f"{cell.text} ↯", value=cell.value, reason=cell.reason)


def _not_monotone(values: Values, names: Sequence[str], title: str) -> str:
    """In which cases the median does not rise at each step, and where it falls first; the table marks the others."""
    failed = []
    for name in names:
        for kind, of in values["contenders"][name].items():
            rises = of["rises"]
            if not all(rises):
                where = f", first at {of['falls_at']}" if of["falls_at"] else ""
                seeds = f" with {rises.count(False)} of {len(rises)} seeds" if len(rises) > 1 else ""
                failed.append(f"{name} with {kind}{seeds}{where}")
    if not failed:
        return f"On {title} the median uncertainty of {' and '.join(names)} rises at each step of every intervention."
    return f"On {title} the median uncertainty does not rise at each step: {'; '.join(failed)}."


def _scaled(of: Mapping[str, Any]) -> list[float]:
    low, _, high = of["quartiles"][0]
    return [(median - low) / ((high - low) or 1.0) for _, median, _ in of["quartiles"]]


def _violins(values: Values, name: str, context: Context, plot: str) -> Figure:
    found, views = values["contenders"][name], values["views"]
    said = (
        f"{kind} {_span(of['quartiles'][0])} to {_span(of['quartiles'][-1])} at {views[kind][-1]}"
        for kind, of in found.items()
    )
    return Figure(
        name=plot,
        caption=f"{name}: how its uncertainty is distributed at each strength, with median (dot) and quartiles (bar); "
        "dashed: the median of the unchanged. All violins are equally wide; the outermost hundredth at each end of a "
        "view may be drawn at the end." + context.one_seed([name]),
        words=f"Violins of {name}: median and, in brackets, quartiles of the unchanged images and at the greatest "
        f"strength. {'; '.join(said)}.",
        draw=lambda theme: draw_violins(found, views, theme),
    )


def _span(quartiles: Sequence[float]) -> str:
    low, median, high = quartiles
    return f"{median:.3g} ({low:.3g} to {high:.3g})"


def _draw(values: Values, names: Sequence[str], theme: Theme) -> Drawing:
    from pipeline.report.style import figure, legible

    made = figure(0.9 + 2.3 * len(names))
    panels = np.atleast_1d(made.subplots(len(names), 1, sharex=True))
    colours = (*theme.series, theme.ink)
    for axes, name in zip(panels, names, strict=True):
        for kind, colour in zip(values["views"], colours, strict=False):
            scaled = _scaled(values["contenders"][name][kind])
            axes.plot(
                np.linspace(0, 1, len(scaled)), scaled, marker=MARKS[kind], markersize=4, color=colour, label=kind
            )
        axes.axhspan(0, 1, color=theme.faint, alpha=0.5, linewidth=0)
        axes.set_title(legible(name))
    panels[-1].set_xticks([0, 1], ["unchanged", "strongest"])
    made.legend(*panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=3)
    made.supylabel("median uncertainty, in quartiles of the unchanged", fontsize=9.5)
    return made


def _in_words(values: Values, names: Sequence[str]) -> str:
    said = []
    for name in names:
        ends = (f"{kind} {_scaled(of)[-1]:.1f}" for kind, of in values["contenders"][name].items())
        said.append(
            f"{name}, from {_scaled(next(iter(values['contenders'][name].values())))[0]:.1f} to {', '.join(ends)}"
        )
    return f"Median uncertainty, unchanged and at the greatest strength, scaled by quartiles. {'; '.join(said)}."
