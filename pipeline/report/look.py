"""How each contender is drawn: the same colour and dash in all plots of a report, however many there are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from pipeline.report.style import legible

if TYPE_CHECKING:
    from pipeline.report.style import Theme

HEADS, BASELINES = 5, 3  # colours of each: so many one plot tells apart
BARS = 100  # in one plot
ENTROPY = "classifier_entropy"  # stands beside every head
Dash: TypeAlias = "str | tuple[int, tuple[float, ...]]"
DASHES: tuple[Dash, ...] = ("-", (0, (5, 1.5)), (0, (3, 1, 1, 1)), (0, (1, 1)), (0, (6, 1, 1, 1, 1, 1)))

MARKS = ("o", "s", "^", "D", "v", "P", "X")


@dataclass(frozen=True, kw_only=True)
class Look:
    """The contenders by name, heads and baselines apart, those first that are drawn where not all can be."""

    heads: Sequence[str]
    baselines: Sequence[str]

    @classmethod
    def of(cls, results: Sequence[Mapping[str, Any]]) -> Look:
        """Of all contenders of some collections.

        In their order; where heads are more than there are colours, behind the first those with the highest R-AUROC
        come first (mean over the collections where it is defined).
        """
        roles = {item["name"]: item["role"] for result in results for item in result["contenders"]}
        heads = [name for name, role in roles.items() if role != "baseline"]
        if len(heads) > HEADS:
            value = _r_auroc(results)
            heads[1:] = sorted(heads[1:], key=lambda name: -value.get(name, 0.0))
        return cls(heads=heads, baselines=[name for name, role in roles.items() if role == "baseline"])

    def main(self, names: Sequence[str]) -> list[str]:
        """Of ``names``, those that a plot with a panel for each has room for: the first head, and the entropy."""
        first = [name for name in self.heads[:1] if name in names]
        return [*first, *(name for name in names if name == ENTROPY and name not in first)] or list(names[:1])

    def drawn(self, names: Sequence[str], groups: int = 1) -> list[str]:
        """Of ``names``, those that one plot tells apart; ``groups``: how often each of them is in it."""
        shown = [name for name in names if name in (*self.heads[:HEADS], *self.baselines[:BASELINES])]
        return shown if len(shown) * groups <= BARS else self.main(names)

    def left_out(self, names: Sequence[str], groups: int = 1) -> str:
        """A sentence for the caption, where not all of ``names`` are drawn; else nothing."""
        shown = self.drawn(names, groups)
        return (
            f" Drawn are {len(shown)} of {len(names)} methods; the tables have all." if len(shown) < len(names) else ""
        )

    def panels(self, names: Sequence[str]) -> str:
        """A sentence for the caption of a plot of :meth:`main`, where ``names`` are more; else nothing."""
        shown = self.main(names)
        return f" Drawn: {' and '.join(shown)}, of {len(names)} methods." if len(shown) < len(names) else ""

    def colour(self, name: str, theme: Theme) -> str:
        """Of a contender; beyond as many as there are colours they come again."""
        if name in self.baselines:
            return theme.baselines[self.baselines.index(name) % BASELINES]
        return theme.series[self.heads.index(name) % HEADS]

    def dash(self, name: str) -> Dash:
        """Line style: neighbours differ in it."""
        place = self.baselines.index(name) + 1 if name in self.baselines else self.heads.index(name)
        return DASHES[place % len(DASHES)]

    def line(self, name: str, theme: Theme) -> dict[str, Any]:
        """Arguments of ``axes.plot``: label, colour and line style."""
        return {"label": legible(name), "color": self.colour(name, theme), "linestyle": self.dash(name)}


def _r_auroc(results: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Contender → mean of the median R-AUROC over collections."""
    found: dict[str, list[float]] = {}
    for result in results:
        for item in result["contenders"]:
            if item["seeds"]:
                median = item["scores"][item["primary"]]["r_auroc"]["median"]
                found.setdefault(item["name"], []).extend([] if median is None else [median])
    return {name: sum(values) / len(values) for name, values in found.items() if values}
