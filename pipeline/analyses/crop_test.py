"""Is a head less sure of a part of an image than of the whole? (URL, Sec. 4.5 and 4.6; MCInfoNCE, Table 4.)"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from pipeline.analyses.base import CollectionAnalysis, Needs, NotApplicable, Values
from pipeline.report.parts import Cell, Context, Figure, Part, Table, Words, number

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

    from pipeline.evaluation.collection import Collection
    from pipeline.metrics.undefined import Score
    from pipeline.report.style import Theme

WHOLE = 100  # per cent of the side: the view center
MOSTLY = 0.9  # of the crops of a size should differ from each other


class CropTest(CollectionAnalysis):
    """Of the primary uncertainty of each contender, on the images of which there are crops."""

    title = "Crop test"
    about = (
        "Share of the crops with a higher uncertainty than the whole view, equals by half: ½ by chance, higher is "
        "better. And the rank correlation of the uncertainty with how much is cut away, over all images and sizes, "
        "which is the lower the more the images differ from each other. (Kirchhof et al., URL, 2023, Sec. 4.5 and 4.6.)"
    )
    place = 60
    needs = Needs(views=("crop_",))

    def measure(self, collection: Collection) -> Values:
        """``{rows, sizes, distinct, contenders: {name: {share, share_<size>, rank_correlation}}}``.

        Numbers are over seeds; ``distinct``: how many different representations the crops of each size have.
        """
        sizes = [size for size in crop_sizes(collection.views) if size != WHOLE]
        if not sizes:
            raise NotApplicable("its store has no crop beside the whole view")
        found: dict[str, Any] = {}
        for item in collection.present:
            of_seeds = (_seed(collection, item.name, seed, sizes) for seed in item.seeds)
            found[item.name] = collection.numbers(of_seeds)
        crops = (collection.changed.representation(f"crop_{size}") for size in sizes)
        distinct = [len({row.tobytes() for row in crop_VD}) for crop_VD in crops]
        return {"rows": len(collection.changed.keys), "sizes": sizes, "distinct": distinct, "contenders": found}

    def show(self, values: Values, context: Context) -> Iterator[Part]:
        """A table, and the share against the size."""
        sizes, contenders = values["sizes"], values["contenders"]
        shown = sorted({sizes[0], sizes[len(sizes) // 2], sizes[-1]}, reverse=True)
        columns = ("Score", "All crops", *(f"{size} %" for size in shown), "Rank correlation")
        rows = [
            [
                Cell(text=name, value=name),
                number(found["share"]),
                *(number(found[f"share_{size}"]) for size in shown),
                number(found["rank_correlation"], signed=True),
            ]
            for name, found in contenders.items()
        ]
        caption = f"Crop test on {values['rows']:,} images of {context.title}: share of crops, by side, less sure of"
        if alike := _alike(values):
            yield Words(text=alike)
        yield Table(caption=caption, columns=columns, rows=rows)
        yield Figure(
            caption="Share of the crops with a higher uncertainty than the whole view, against the side that is kept."
            " Higher is better; medians over seeds." + context.look.left_out(list(contenders)),
            words=_in_words(values),
            draw=lambda theme: _draw(values, context, theme),
        )


def crop_sizes(views: tuple[str, ...]) -> list[int]:
    """Sides of the crops that there are, in per cent, the largest first."""
    sizes = (int(name.removeprefix("crop_")) for name in views if name.startswith("crop_"))
    return sorted(sizes, reverse=True)


def _seed(collection: Collection, name: str, seed: int, sizes: list[int]) -> Mapping[str, Score]:
    from pipeline.metrics.agreement import rank_correlation, share_higher

    def of(view: str) -> Any:
        said = collection.score_view(name, seed, view)
        return said.uncertainty[said.primary]

    whole_V = of("center")
    crops = {size: of(f"crop_{size}") for size in sizes}
    everything = [whole_V, *crops.values()]
    cut_away = np.concatenate([np.full(len(whole_V), WHOLE - size) for size in (WHOLE, *crops)])
    return {
        "share": share_higher(np.concatenate([*crops.values()]), np.tile(whole_V, len(crops))),
        **{f"share_{size}": share_higher(crop_V, whole_V) for size, crop_V in crops.items()},
        "rank_correlation": rank_correlation(np.concatenate(everything), cut_away.astype(np.float64)),
    }


def _alike(values: Values) -> str:
    """Where many crops have the same representation: there the test says nothing of heads."""
    few = [
        (size, count)
        for size, count in zip(values["sizes"], values["distinct"], strict=True)
        if count < MOSTLY * values["rows"]
    ]
    if not few:
        return ""
    said = ", ".join(f"{count:,} at {size} %" for size, count in few)
    return (
        f"Of {values['rows']:,} crops so many differ: {said} of the side. The others show the same, such as an empty "
        "ground, and no uncertainty can answer to what is not there."
    )


def _draw(values: Values, context: Context, theme: Theme) -> Drawing:
    from matplotlib.ticker import PercentFormatter

    from pipeline.report.style import figure, legend

    made = figure(3.3)
    axes = made.subplots()
    names = context.look.drawn(list(values["contenders"]))
    for name in names:
        found = values["contenders"][name]
        share = [found[f"share_{size}"]["median"] for size in values["sizes"]]
        axes.plot(values["sizes"], share, marker="o", markersize=3, **context.look.line(name, theme))
    axes.axhline(0.5, color=theme.ink, linestyle=(0, (1, 2)), linewidth=1.1, label="chance")
    axes.invert_xaxis()
    axes.set_xlabel("side that is kept, %")
    axes.set_ylabel("share less sure than of the whole")
    axes.yaxis.set_major_formatter(PercentFormatter(1))
    legend(made, len(names) + 1)
    return made


def _in_words(values: Values) -> str:
    largest, smallest = values["sizes"][0], values["sizes"][-1]
    said = [
        f"{name}: {found[f'share_{largest}']['median']:.0%} at {largest} % of the side, "
        f"{found[f'share_{smallest}']['median']:.0%} at {smallest} %"
        for name, found in values["contenders"].items()
    ]
    return f"Share of crops less sure than the whole view. {'; '.join(said)}."
