"""R-AUROC of every collection and contender side by side (*Pretrained Visual Uncertainties*, App. D, Fig. 1)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pipeline.analyses._bars import bars_caption, bars_in_words, draw_bars
from pipeline.analyses.base import Comparison, Values
from pipeline.report.parts import Context, Figure, Part

if TYPE_CHECKING:
    from pipeline.evaluation.collection import Collection


class RAuroc(Comparison):
    """Bars of the primary uncertainties."""

    title = "R-AUROC"
    about = "The probability that a wrong image is less certain than a right one; 0.5 is chance, higher is better."
    place = 0
    open = True

    def compare(self, collections: Sequence[Collection]) -> Values:
        """Collection → contender → numbers over seeds."""
        return {
            item.id: {
                contender["name"]: contender["scores"][contender["primary"]]["r_auroc"]
                for contender in item.result["contenders"]
                if contender["seeds"]
            }
            for item in collections
        }

    def show(self, values: Values, context: Context) -> Iterator[Part]:
        """One plot of all."""
        titled = context.titled(values)
        yield Figure(
            caption=bars_caption(titled, "R-AUROC of each score.", context),
            words=bars_in_words(titled, "R-AUROC"),
            draw=lambda theme: draw_bars(titled, "R-AUROC", context, theme),
        )
