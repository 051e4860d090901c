"""The look of the plots: colours that colour-blind readers tell apart, in a light and a dark version.

Colours after Okabe and Ito, *Color universal design* (2008), lightened for the dark version; beside its colour every
series also has its own line and its own text. Matplotlib is imported where something is drawn: it takes a second.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDTH = 5.2  # inches: legible at the width of a phone as well
DOTS = 200  # an inch


@dataclass(frozen=True, kw_only=True)
class Theme:
    """Colours of one version; ``series`` are given in the order of the contenders, baselines take ``baselines``."""

    name: str
    ground: str
    ink: str
    faint: str
    right: str
    wrong: str
    series: tuple[str, ...]
    baselines: tuple[str, ...]


LIGHT = Theme(
    name="light",
    ground="#ffffff",
    ink="#1d2521",
    faint="#d9dfda",
    right="#0072b2",
    wrong="#d55e00",
    series=("#00734f", "#0072b2", "#aa4499", "#56b4e9", "#882255"),
    baselines=("#d98c00", "#8a8f8c", "#bcc1be"),
)
DARK = Theme(
    name="dark",
    ground="#171c19",
    ink="#e4eae6",
    faint="#353d38",
    right="#56b4e9",
    wrong="#f08030",
    series=("#2fc48f", "#56b4e9", "#e29ad0", "#9fd3f2", "#d17a9a"),
    baselines=("#f0b030", "#9aa19d", "#666d69"),
)
THEMES = (LIGHT, DARK)


@contextmanager
def drawing(theme: Theme) -> Iterator[None]:
    """Matplotlib's settings while a figure of ``theme`` is drawn; nothing global is left changed."""
    settings: dict[Any, Any] = {
        "font.family": "DejaVu Sans",
        "font.size": 9.5,
        "axes.titlesize": 10.5,
        "axes.titleweight": "bold",
        "axes.titlelocation": "left",
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.edgecolor": theme.ink,
        "axes.linewidth": 0.7,
        "axes.labelcolor": theme.ink,
        "axes.facecolor": theme.ground,
        "axes.grid": True,
        "axes.axisbelow": True,
        "grid.color": theme.faint,
        "grid.linewidth": 0.6,
        "text.color": theme.ink,
        "xtick.color": theme.ink,
        "ytick.color": theme.ink,
        "legend.frameon": False,
        "legend.fontsize": 8.5,
        "figure.facecolor": theme.ground,
        "figure.constrained_layout.use": True,
        "lines.linewidth": 1.8,
    }
    import matplotlib as mpl

    with mpl.rc_context(settings):
        yield


def figure(height: float) -> Figure:
    """An empty figure of the common width, ``height`` in inches."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    made = Figure(figsize=(WIDTH, height), dpi=DOTS)
    FigureCanvasAgg(made)
    return made


def png(made: Figure) -> bytes:
    """The figure as PNG; the same figure gives the same bytes."""
    buffer = io.BytesIO()
    made.savefig(buffer, format="png", metadata={"Software": None})
    return buffer.getvalue()
