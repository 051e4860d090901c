"""What the maps of a collection share: which rows, how they are drawn, and what is said of them.

Points are larger and more transparent the less certain they are (*Pretrained visual uncertainties*, Sec. 5.1, Fig. 9):
certain images make the cores of the classes, uncertain ones lie at their borders.

Shape suffixes: R rows that are shown.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from pipeline.analyses.base import CollectionAnalysis, Needs, NotApplicable, Values
from pipeline.report.parts import Context, Figure, Part

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing
    from numpy.typing import NDArray

    from pipeline.evaluation.collection import Collection
    from pipeline.report.style import Theme

ROWS = 5000  # that are shown: more would hide each other
LEAST = 10
CLASSES = 8  # that have a colour of their own, the largest


class Map(CollectionAnalysis):
    """Of the representation, with the primary uncertainty of the first contender at the seed that pictures show."""

    place = 60
    quick = False
    needs = Needs()
    method = ""

    @abstractmethod
    def layout(self, representation_RD: NDArray[Any], metric: str) -> NDArray[Any]:
        """(R, 2) places, the same on every call."""

    def measure(self, collection: Collection) -> Values:
        """``{contender, seed, rows, of, x, y, rank, label, classes}``: rank from 0, the most certain, to 1."""
        import numpy as np

        from pipeline.held_out import hashes

        rows = collection.rows
        if len(rows.keys) < LEAST:
            raise NotApplicable(f"there are {len(rows.keys)} images, a map takes {LEAST}")
        mark_N = hashes(np.array([f"map {key}".encode() for key in rows.keys]))
        row_R = np.sort(np.argsort(mark_N, kind="stable")[:ROWS])
        representation_RD = rows.representation_ND[row_R]
        if (representation_RD == representation_RD[0]).all():
            raise NotApplicable("the backbone finds all images alike, so none has a place of its own")
        place_R2 = self._placed(representation_RD, collection.result["metric"])
        item = collection.present[0]
        uncertainty_R = item.shown.uncertainty[item.shown.primary][row_R]
        rank_R = np.argsort(np.argsort(uncertainty_R, kind="stable")) / (len(row_R) - 1)
        label_R = rows.label_N[row_R].tolist()
        largest = [label for label, _ in Counter(label for label in label_R if label >= 0).most_common(CLASSES)]
        return {
            "contender": item.name,
            "seed": item.shown_seed,
            "of": len(rows.keys),
            "x": [round(float(value), 3) for value in place_R2[:, 0]],
            "y": [round(float(value), 3) for value in place_R2[:, 1]],
            "rank": [round(float(value), 4) for value in rank_R],
            "label": [largest.index(label) if label in largest else -1 for label in label_R],
            "classes": [rows.class_names[label] for label in largest],
        }

    def _placed(self, representation_RD: NDArray[Any], metric: str) -> NDArray[Any]:
        """:meth:`layout`, also where numba, by which these packages are compiled, can keep nothing of it.

        It keeps it beside the packages or in the home folder, and refuses if both can only be read, as in a container.
        """
        try:
            return self.layout(representation_RD, metric)
        except RuntimeError as error:
            if "cannot cache function" not in str(error):
                raise
        import_module("numba").config.CACHE_DIR = _until_the_end().name
        return self.layout(representation_RD, metric)

    def show(self, values: Values, context: Context) -> Iterator[Part]:
        """The map."""
        some = f" {len(values['x']):,} of {values['of']:,} images." if len(values["x"]) < values["of"] else ""
        yield Figure(
            caption=f"{self.method} of the representation. The larger and paler a point, the less certain is "
            f"{values['contender']}, seed {values['seed']}. Colours: the largest classes.{some}",
            words=f"Map of {len(values['x']):,} images of {context.title} by {self.method}, with the classes "
            f"{', '.join(values['classes']) or 'unknown'}.",
            draw=lambda theme: _draw(values, theme),
        )


@cache
def _until_the_end() -> TemporaryDirectory[str]:
    return TemporaryDirectory(prefix="numba-")


def _draw(values: Values, theme: Theme) -> Drawing:
    import numpy as np
    from matplotlib.colors import to_rgba

    from pipeline.report.style import figure, legible

    made = figure(4.6 + 0.19 * -(-len(values["classes"]) // 2))
    axes = made.subplots()
    x_R, y_R, rank_R = (np.array(values[key]) for key in ("x", "y", "rank"))
    colours = (*theme.series, *theme.baselines)
    order_R = np.argsort(-rank_R, kind="stable")  # certain ones lie on top
    colour_R4 = np.array([to_rgba(colours[label] if label >= 0 else theme.faint) for label in values["label"]])
    colour_R4[:, 3] = 0.9 - 0.75 * rank_R
    size_R = 3 + 45 * rank_R**3
    axes.scatter(x_R[order_R], y_R[order_R], s=size_R[order_R], c=colour_R4[order_R], linewidths=0)
    for name, colour in zip(values["classes"], colours, strict=False):
        axes.scatter([], [], s=20, color=colour, label=legible(name))
    axes.set_xticks([])
    axes.set_yticks([])
    axes.set_aspect("equal", adjustable="datalim")
    if values["classes"]:
        made.legend(loc="outside upper center", ncols=2, fontsize=7.5)
    return made
