"""What an analysis is: it measures plain values on what was evaluated, and shows them in the report.

The file's name is its name. Analyses of a collection are measured right after it was scored, comparisons when all are;
an analysis that is added later takes the stored scores and touches no image. This file, and the top of every analysis,
imports nothing that computes, so that whoever asks how far an evaluation is does not wait for torch or matplotlib.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from pipeline.evaluation.collection import Collection
    from pipeline.report.parts import Context, Part

#: What an analysis measures: JSON-like, no NaN; what is undefined is None, with its reason beside it.
Values = Mapping[str, Any]


class NotApplicable(Exception):  # noqa: N818 (no error: it is said in the report)
    """This collection cannot be analysed so; the text says why, as a clause without a full stop."""


@dataclass(frozen=True, kw_only=True)
class Needs:
    """What a collection must have to be analysed; else the report says what it lacks."""

    judged: bool = False  # rows whose neighbour can be judged: labelled, with another of their class
    views: tuple[str, ...] = ()  # named views: the store has one, beside center, that begins with one of these
    contenders: int = 1  # so many methods with scores

    def why_not(self, collection: Collection) -> str:
        """What the collection lacks; "" where it lacks nothing."""
        if self.judged and not collection.result["counts"]["counted"]:
            return "no row has another row of its class"
        if self.views and not any(name.startswith(self.views) for name in collection.views):
            return f"its store has no view {' … or '.join(self.views)} …, only {', '.join(collection.views)}"
        if len(present := [item.name for item in collection.scored if item.seeds]) < self.contenders:
            return f"it takes {self.contenders} methods with scores, there {'is' if len(present) == 1 else 'are'} " + (
                ", ".join(present) or "none"
            )
        return ""


class Analysis(ABC):
    """Common to both kinds; subclass :class:`CollectionAnalysis` or :class:`Comparison`.

    Attributes:
        title: heading in the report.
        about: what it says and which way is better, in a sentence or two; with the source of a formula.
        place: the report shows analyses in the order of this number, then of their names.
        quick: takes seconds, so it is measured unless it is left out; others are asked for by name.
        open: the report shows it unfolded.
        version: of what it measures. Raise it when the values change their form or meaning: what earlier versions
            stored is measured anew, from the stored scores.
        packages: modules that it imports and that come with the extra ``maps``, not with the program.
    """

    title: ClassVar[str]
    about: ClassVar[str] = ""
    place: ClassVar[int] = 50
    quick: ClassVar[bool] = True
    open: ClassVar[bool] = False
    version: ClassVar[int] = 1
    packages: ClassVar[tuple[str, ...]] = ()

    def __init__(self, name: str) -> None:
        self.name = name

    @property
    def lacking(self) -> list[str]:
        """The packages that are not installed."""
        return [name for name in self.packages if find_spec(name) is None]

    @abstractmethod
    def show(self, values: Values, context: Context) -> Iterator[Part]:
        """The parts of the report, top to bottom: words, tables, figures, galleries, files to download.

        Args:
            values: what was measured, as read from JSON (keys are strings, tuples are lists).
            context: the collection's result, or all of them; how each contender is drawn.
        """


class CollectionAnalysis(Analysis):
    """Measures one collection."""

    needs: ClassVar[Needs] = Needs()

    @abstractmethod
    def measure(self, collection: Collection) -> Values:
        """The values of one collection, the same on every run.

        Raises:
            NotApplicable: it cannot be analysed so, for a reason that ``needs`` does not cover.
        """

    def files(self, collection: Collection, values: Values) -> Mapping[str, bytes]:
        """Files that are written beside the values: name → bytes, the same on every run."""
        return {}


class Comparison(Analysis):
    """Measures all collections together, once, when every one is scored."""

    @abstractmethod
    def compare(self, collections: Sequence[Collection]) -> Values:
        """The values over all collections, the upstream one first unless it is left out.

        Raises:
            NotApplicable: these collections cannot be compared so.
        """
