"""Do the uncertainties say the same? Spearman's ρ of each with each, over the images, at every seed."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from pipeline.analyses._tables import contender_table
from pipeline.analyses.base import CollectionAnalysis, Needs, Values
from pipeline.report.parts import Context, Figure, Part, Words

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

    from pipeline.evaluation.collection import Collection
    from pipeline.report.style import Theme

WRITTEN = 12  # methods up to which the numbers stand in the squares


class Agreement(CollectionAnalysis):
    """Of the primary uncertainties, seed by seed; a method of one seed stands beside each seed of the others."""

    title = "Agreement of the uncertainties"
    about = (
        "Rank correlation over the images: 1 = they order them alike, 0 = neither says anything of the other, −1 = the "
        "other way round. Neither end is better. Median over seeds, both at the same seed."
    )
    place = 30
    version = 2  # numbers over all seeds; 1 had one number, of the seeds that pictures show
    needs = Needs(contenders=2)

    def measure(self, collection: Collection) -> Values:
        """``rows``; ``pairs``: contender → itself and each behind it → ρ over seeds."""
        from pipeline.metrics.aggregate import plain_numbers
        from pipeline.metrics.agreement import agreement
        from pipeline.metrics.undefined import Undefined

        present = collection.present
        found = {}
        for seed in sorted({seed for item in present for seed in item.seeds}):
            at_seed = {item.name: scores for item in present if (scores := item.at(seed)) is not None}
            found[seed] = agreement({name: scores.uncertainty[scores.primary] for name, scores in at_seed.items()})
        pairs: dict[str, dict[str, Any]] = {}
        for place, one in enumerate(present):
            for other in present[place:]:
                seeds = sorted({*one.seeds, *other.seeds})
                values = [found[seed][one.name][other.name] for seed in seeds if _both(found[seed], one, other)]
                numbers = plain_numbers(values or [Undefined("they have no seed in common")])
                pairs.setdefault(one.name, {})[other.name] = numbers
        return {"rows": len(collection.rows.keys), "pairs": pairs}

    def show(self, values: Values, context: Context) -> Iterator[Part]:
        """A heat map, and a table of the correlations with the head and with the entropy."""
        names, rho_MM = list(values["pairs"]), _matrix(values["pairs"])
        defined = {
            (names[a], names[b]): rho_MM[a, b]
            for a, b in combinations(range(len(names)), 2)
            if not np.isnan(rho_MM[a, b])
        }
        said = [f"{a} and {b}: {rho:.2f}" for (a, b), rho in sorted(defined.items(), key=lambda item: -item[1])]
        yield Figure(
            caption=f"Spearman's ρ of the uncertainties of each pair of methods over {values['rows']:,} images, median "
            "over seeds.",
            words=f"Rank correlations on {context.title}. {'; '.join(said) or 'none is defined'}.",
            draw=lambda theme: _draw(rho_MM, names, theme),
        )
        main = context.look.main(names)
        numbers = {name: {other: _of(values["pairs"], name, other) for other in main} for name in names}
        columns: Any = {f"ρ with {other}": (other, "") for other in main}
        yield contender_table(f"Rank correlations on {context.title}", numbers, columns, context)
        constant = [name for name in names if values["pairs"][name][name]["median"] is None]
        if constant:
            yield Words(text=f"The same for all images, so without a rank correlation: {', '.join(constant)}.")


def _both(found: Any, one: Any, other: Any) -> bool:
    return one.name in found and other.name in found


def _of(pairs: Any, one: str, other: str) -> Any:
    """Each pair is stored once."""
    return pairs[one][other] if other in pairs[one] else pairs[other][one]


def _matrix(pairs: Any) -> Any:
    """Medians (M, M); NaN where there is none."""
    medians = [[_of(pairs, one, other)["median"] for other in pairs] for one in pairs]
    return np.array([[np.nan if median is None else median for median in row] for row in medians], dtype=float)


def _draw(rho_MM: Any, names: list[str], theme: Theme) -> Drawing:
    from matplotlib.colors import LinearSegmentedColormap

    from pipeline.report.style import figure, ink_on, legible

    colours: Any = LinearSegmentedColormap.from_list("rho", [theme.wrong, theme.ground, theme.right])
    made = figure(min(1.6 + 0.42 * len(names), 6.4))
    axes = made.subplots()
    image = axes.imshow(np.ma.masked_invalid(rho_MM), vmin=-1, vmax=1, cmap=colours)
    size = 8.5 if len(names) <= WRITTEN else 6.5
    axes.set_xticks(range(len(names)), [legible(name) for name in names], rotation=90, fontsize=size)
    axes.set_yticks(range(len(names)), [legible(name) for name in names], fontsize=size)
    axes.grid(visible=False)
    axes.tick_params(length=0)
    if len(names) <= WRITTEN:
        for (row, column), rho in np.ndenumerate(rho_MM):
            text = "–" if np.isnan(rho) else f"{round(rho, 2) + 0.0:.2f}".replace("-", "−")
            ink = theme.ink if np.isnan(rho) else ink_on(colours((rho + 1) / 2), theme)
            axes.text(column, row, text, ha="center", va="center", fontsize=8, color=ink)
    made.colorbar(image, ax=axes, shrink=0.7, label="Spearman's ρ").outline.set_visible(False)
    return made
