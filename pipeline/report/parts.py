"""What a report is made of: words, tables, figures, galleries of images, files to download."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from pipeline.report.look import Look

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

    from pipeline.report.style import Theme

Result = Mapping[str, Any]
UNDEFINED = "undefined"


@dataclass(frozen=True, kw_only=True)
class Cell:
    """What stands in a table, what it sorts by (None: last), why, where it is undefined, and whether it is bold."""

    text: str
    value: float | str | None = None
    reason: str = ""
    strong: bool = False

    @property
    def key(self) -> str:
        """``value`` as a page's script reads it, in which infinity has another name than in Python; "" sorts last."""
        if isinstance(self.value, float) and math.isinf(self.value):
            return "Infinity" if self.value > 0 else "-Infinity"
        return "" if self.value is None else str(self.value)


def number(numbers: Mapping[str, Any], *, signed: bool = False, best: float | None = None) -> Cell:
    """``median ± larger distance``; the distance only where seeds differ; bold where the median is ``best``."""
    if numbers["median"] is None:
        return Cell(text=UNDEFINED, reason=numbers["undefined"])
    median = round(numbers["median"], 3) + 0.0  # −0 becomes 0
    text = f"{median:+.3f}" if signed and median else f"{median:.3f}"
    if numbers["distance"] > 0:
        text += f" ± {numbers['distance']:.3f}"
    return Cell(text=text.replace("-", "−"), value=numbers["median"], strong=numbers["median"] == best)


@dataclass(frozen=True, kw_only=True)
class Words:
    """A paragraph."""

    text: str


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table that can be sorted by each column.

    Attributes:
        caption: what it is of.
        columns: headings.
        rows: cells in the order of the columns; a column without a text value is set flush right and sorts by number.
        classes: role of each row (``head``, ``compare``, ``baseline``), which decides how it looks; none: all alike.
    """

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    classes: Sequence[str] = ()

    @property
    def numbers(self) -> frozenset[str]:
        """The columns of numbers."""
        return frozenset(
            column
            for place, column in enumerate(self.columns)
            if not any(isinstance(row[place].value, str) for row in self.rows)
        )

    @property
    def reasons(self) -> list[str]:
        """What is undefined and why, a sentence a reason: not every reader can point at a cell."""
        found: dict[str, dict[str, None]] = {}
        for row in self.rows:
            for column, cell in zip(self.columns, row, strict=True):
                if cell.reason:
                    found.setdefault(cell.reason, {})[column] = None
        return [f"Undefined, {', '.join(columns)}: {reason}." for reason, columns in found.items()]


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A plot, and the same in words for who cannot see it.

    Attributes:
        name: distinguishes several plots of one analysis; "" where there is one. Fit for a file name.
        caption: below it.
        words: what the plot says, numbers included.
        draw: makes it in the colours of a theme, with :func:`pipeline.report.style.figure`; the same on every call.
    """

    caption: str
    words: str
    draw: Callable[[Theme], Drawing]
    name: str = ""


@dataclass(frozen=True, kw_only=True)
class Picture:
    """One image of a gallery.

    Attributes:
        file: of those that the analysis wrote; None: the image is not shown.
        title, note: below it.
        words: in its place for who cannot see it.
        kind: ``right``, ``wrong`` or ``unjudged``: the colour of the note.
    """

    file: str | None
    title: str
    note: str
    words: str
    kind: str = "unjudged"


@dataclass(frozen=True, kw_only=True)
class Gallery:
    """Small images side by side."""

    title: str
    small: str  # beside the title
    pictures: Sequence[Picture]


@dataclass(frozen=True, kw_only=True)
class Download:
    """A file that the analysis wrote, for who wants it as a file; the page carries it with it."""

    file: str
    words: str


Part: TypeAlias = Words | Table | Figure | Gallery | Download


@dataclass(frozen=True, kw_only=True)
class Context:
    """What an analysis may look at when it shows its values.

    Attributes:
        results: of the collection alone, or of all that are compared.
        look: how each contender is drawn, the same in all plots of a report.
    """

    results: Sequence[Result]
    look: Look

    @property
    def result(self) -> Result:
        """Of the one collection."""
        (only,) = self.results
        return only

    @property
    def title(self) -> str:
        """What the collection is called."""
        return str(self.result["dataset"])

    @property
    def judged(self) -> str:
        """The collection, and how many images a number of it is of."""
        return f"{self.title} ({self.result['counts']['counted']:,} judged images)"

    def one_seed(self, names: Iterable[str]) -> str:
        """A sentence for the caption of a plot of one seed each, where one of ``names`` has several; else nothing."""
        wanted = set(names)
        found = [item for result in self.results for item in result["contenders"] if item["name"] in wanted]
        several = any(len(item["seeds"]) > 1 for item in found)
        return " One seed of each: the one whose R-AUROC is nearest to the median." if several else ""

    def titled(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Values by id of a collection, by its title."""
        titles = {result["id"]: result["dataset"] for result in self.results}
        return {titles[unit]: found for unit, found in values.items()}
