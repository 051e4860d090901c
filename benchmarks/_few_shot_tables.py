"""The few-shot curve as tables and as a picture: scores over the number of samples of each class."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.reproductions.tables import markdown
from pipeline.files import write_bytes
from pipeline.report.look import ENTROPY
from pipeline.report.style import LIGHT, drawing, figure, legend, png

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SCORES = {"r_auroc": "R-AUROC", "recall_at_1": "R@1"}
REFERENCE = "cross_entropy"  # what a few labels give without anything learnt upstream
NORM = "inverse_norm"  # what nothing at all gives
OWN = "backbone_entropy"  # of the backbone's own classifier, which knows other classes
BASELINES = {
    ENTROPY: "entropy of a probe on the shots",
    OWN: "entropy of the backbone's classifier",
    NORM: "inverse norm",
}
CONSTANT = (OWN, NORM)  # nothing of them depends on the shots
COLUMNS = 3  # panels side by side


@dataclass(frozen=True, kw_only=True)
class Curves:
    """Scores by name of the line, number of shots (0: as it was) and seed.

    Attributes:
        shots: numbers of samples of each class, ascending, without 0.
        scores: line → shots → seed → score → value, None where it is undefined.
    """

    shots: Sequence[int]
    scores: dict[str, dict[int, dict[int, dict[str, float | None]]]] = field(default_factory=dict)

    def add(self, contender: Mapping[str, Any], *, head: str, shots: int, seed: int, probed: bool) -> None:
        """Take what one contender of an evaluation has: the head, the head as it was, or a baseline of these.

        Args:
            contender: of the record of an evaluation.
            head: that went on.
            shots: that it went on with.
            seed: of both.
            probed: whether the store has a probe on the shots, whose entropy is then that of the classifier.
        """
        if contender["role"] == "head":
            line = head
        elif contender["name"].endswith("before training"):
            line, shots = head, 0
        elif contender["name"] in BASELINES and contender["absent"] is None:
            line = contender["name"] if probed or contender["name"] != ENTROPY else OWN
        else:
            return
        primary = contender["scores"][contender["primary"]]["r_auroc"]
        values = {"r_auroc": primary, "recall_at_1": contender["recall_at_1"]}
        of_seed = {name: one["values"][0] if one["values"] else None for name, one in values.items()}
        places = (0, *self.shots) if line in CONSTANT else (shots,)
        for place in places:
            self.scores.setdefault(line, {}).setdefault(place, {})[seed] = of_seed

    def values(self, line: str, shots: int, score: str) -> list[float] | None:
        """Of all seeds; None where there is none, or one is undefined."""
        found = [one[score] for one in self.scores.get(line, {}).get(shots, {}).values()]
        known = [value for value in found if value is not None]
        return known if known and len(known) == len(found) else None

    @property
    def lines(self) -> list[str]:
        """The heads, as they were asked for, then the baselines."""
        heads = [line for line in self.scores if line not in BASELINES]
        return [*heads, *(line for line in BASELINES if line in self.scores)]


def table(curves: Curves, score: str) -> str:
    """Mean over seeds, and in brackets the least and the greatest; a line a head, a column a number of shots."""
    lines = []
    for line in curves.lines:
        of_line = [curves.values(line, shots, score) for shots in (0, *curves.shots)]
        cells = ["–" if v is None else f"{statistics.fmean(v):.3f} ({min(v):.3f}–{max(v):.3f})" for v in of_line]
        seeds = max(len(v or []) for v in of_line)
        lines.append([BASELINES.get(line, f"`{line}`"), *cells, str(seeds)])
    return markdown([f"{SCORES[score]}, k =", "0", *map(str, curves.shots), "seeds"], lines)


def draw(curves: Curves, path: Path) -> None:
    """R-AUROC over k: a panel a head, beside cross-entropy and the inverse norm; bands from least to greatest."""
    panels = [line for line in curves.lines if line not in (REFERENCE, *CONSTANT)]
    if not panels:
        return
    rows = -(-len(panels) // COLUMNS)
    beside = {REFERENCE: (LIGHT.baselines[2], "--"), NORM: (LIGHT.baselines[1], ":")}
    with drawing(LIGHT):
        made = figure(0.5 + 1.75 * rows)
        grid = made.subplots(rows, COLUMNS, sharex=True, sharey=True, squeeze=False).flat
        for axes, line in zip(grid, panels, strict=False):
            axes.axhline(0.5, color=LIGHT.ink, linewidth=0.7)
            for other, (colour, dash) in beside.items():
                _plot(axes, curves, other, colour, dash)
            _plot(axes, curves, line, LIGHT.series[1], "-")
            axes.set_title({ENTROPY: "probe's entropy"}.get(line, line.replace("_", " ")), fontsize=8.5)
            axes.set_xticks(range(len(curves.shots) + 1), ["0", *map(str, curves.shots)])
        for axes in list(grid):
            axes.set_axis_off()
        made.supxlabel("samples of each class (0: the head as it was)", fontsize=9.5)
        made.supylabel("R-AUROC", fontsize=9.5)
        handles = [
            made.axes[0].plot([], [], color=colour, linestyle=dash, label=name)[0]
            for name, colour, dash in (
                ("the panel's head, least to greatest", LIGHT.series[1], "-"),
                *((name.replace("_", " "), *beside[name]) for name in beside),
            )
        ]
        legend(made, len(handles))
        write_bytes(path, png(made))


def _plot(axes: Axes, curves: Curves, line: str, colour: str, dash: str) -> None:
    """The mean over seeds and the band from the least to the greatest."""
    found = {
        place: values
        for place, shots in enumerate((0, *curves.shots))
        if (values := curves.values(line, shots, "r_auroc")) is not None
    }
    means = [statistics.fmean(values) for values in found.values()]
    low, high = ([end(values) for values in found.values()] for end in (min, max))
    axes.plot(list(found), means, color=colour, linestyle=dash, marker=".", markersize=5)
    axes.fill_between(list(found), low, high, color=colour, alpha=0.18, linewidth=0)
