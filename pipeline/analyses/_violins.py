"""Violins: how an uncertainty is distributed in each view of the same images, from counts in bins.

Shape suffixes: V views, B bins.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

    from pipeline.report.style import Theme

BINS = 40
TAIL = 0.01  # of the rows of a view that may lie beyond the range at each end; they are counted in the bin there
ACROSS = 2  # panels side by side
HALF = 0.44  # width of half a violin, of the distance of two


def counted(uncertainty_VN: Sequence[NDArray[np.floating]]) -> dict[str, Any]:
    """``{range, counts, quartiles}`` of the N rows in each of V views, all in the same :data:`BINS` bins.

    The range holds all of each view but :data:`TAIL` at either end, so that one odd row does not squeeze the others.
    ``counts`` are V lines of B numbers (as lists they would take most of a results file), ``quartiles`` (V, 3): the
    lower, the median and the upper.
    """
    inner_VE = np.array([np.quantile(values, [TAIL, 1 - TAIL]) for values in uncertainty_VN])
    low, high = float(inner_VE[:, 0].min()), float(inner_VE[:, 1].max())
    if low == high:
        margin = max(abs(low), 1.0) / 2
        low, high = low - margin, high + margin
    edge_B = np.linspace(low, high, BINS + 1)
    return {
        "range": [low, high],
        "counts": [
            " ".join(map(str, np.histogram(np.clip(values, low, high), edge_B)[0])) for values in uncertainty_VN
        ],
        "quartiles": [np.quantile(values, [0.25, 0.5, 0.75]).tolist() for values in uncertainty_VN],
    }


def density(counts: str) -> NDArray[np.float64]:
    """Share in each bin (B,) of a line of counts, smoothed by a Gaussian kernel of Scott's width or of one bin.

    Scott, *Multivariate density estimation*, 1992, Eq. 6.44: σ n^(−1/5). What would leave the range is reflected.
    """
    from scipy.ndimage import gaussian_filter1d

    count_B = np.array(counts.split(), dtype=np.float64)
    share_B = count_B / count_B.sum()
    place_B = np.arange(len(share_B))
    spread = np.sqrt((share_B * np.square(place_B - share_B @ place_B)).sum())
    return np.asarray(gaussian_filter1d(share_B, max(1.0, spread * count_B.sum() ** -0.2), mode="reflect"))


def draw_violins(kinds: Mapping[str, Mapping[str, Any]], views: Mapping[str, Sequence[str]], theme: Theme) -> Drawing:
    """A panel for each kind of intervention: a violin for the unchanged images and for each strength.

    Args:
        kinds: kind → what :func:`counted` gives, the unchanged view first.
        views: kind → the others' names.
        theme: the colours.
    """
    from pipeline.report.style import figure

    down = -(-len(kinds) // ACROSS)
    made = figure(0.3 + 1.55 * down)
    panels = np.atleast_1d(made.subplots(down, min(ACROSS, len(kinds)))).ravel()
    for axes in panels[len(kinds) :]:
        axes.set_visible(False)
    for axes, (kind, found) in zip(panels, kinds.items(), strict=False):
        axes.set_title(kind)
        _panel(axes, found, theme)
        strengths = [name.removeprefix(f"{kind}_") for name in views[kind]]
        axes.set_xticks(range(len(found["counts"])), ["–", *strengths], fontsize=8)
        axes.grid(visible=False, axis="x")
    made.supxlabel("strength (– = unchanged; crop: % of the side)", fontsize=9.5)
    made.supylabel("uncertainty (higher = less sure)", fontsize=9.5)
    return made


def _panel(axes: Axes, found: Mapping[str, Any], theme: Theme) -> None:
    """The first is the unchanged; its median goes through as a line. Every violin is equally wide at its widest."""
    low, high = found["range"]
    middle_B = low + (np.arange(BINS) + 0.5) * (high - low) / BINS
    axes.axhline(found["quartiles"][0][1], color=theme.ink, linewidth=0.8, linestyle=(0, (3, 2)))
    for place, (counts, (lower, median, upper)) in enumerate(zip(found["counts"], found["quartiles"], strict=True)):
        colour = theme.baselines[1] if place == 0 else theme.series[0]
        half_B = density(counts)
        half_B *= HALF / half_B.max()
        axes.fill_betweenx(middle_B, place - half_B, place + half_B, color=colour, alpha=0.55, linewidth=0)
        axes.vlines(place, lower, upper, color=theme.ink, linewidth=2.2)
        axes.plot(place, median, marker="o", markersize=4, color=theme.ground, markeredgecolor=theme.ink)
