"""The look of the plots: colours that colour-blind readers tell apart, in a light and a dark version.

Each has a contrast of 3 : 1 to its ground (WCAG 2.2, 1.4.11), and those that one plot holds stay apart where one kind
of cone is missing, as a test finds by simulation; beside its colour every line also has its own dash, and every bar its
own text. Matplotlib is imported where something is drawn: it takes a second.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDTH = 5.2  # inches: legible at the width of a phone as well
DOTS = 200  # an inch
LETTERS = 42  # of a name in a plot


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
    series=("#00734f", "#0072b2", "#a8327a", "#2795b5", "#3b1d8f"),
    baselines=("#b87a00", "#8e9390", "#2f3431"),
)
DARK = Theme(
    name="dark",
    ground="#171c19",
    ink="#e4eae6",
    faint="#353d38",
    right="#56b4e9",
    wrong="#f08030",
    series=("#2fc48f", "#4a9ff0", "#e469b8", "#a8d8ef", "#8b5cf0"),
    baselines=("#f0b030", "#6e7270", "#c4cbc7"),
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
        "text.parse_math": False,  # a name may have dollars
    }
    import matplotlib as mpl

    with mpl.rc_context(settings), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")  # a box is drawn, the page has words
        yield


def legible(name: str) -> str:
    """A name as a plot shows it: not too long; and legends leave out what begins with an underscore."""
    short = name if len(name) <= LETTERS else f"{name[: LETTERS - 1]}…"
    return f"\u200b{short}" if short.startswith("_") else short


def figure(height: float) -> Figure:
    """An empty figure of the common width, ``height`` in inches."""
    from matplotlib.figure import Figure

    return Figure(figsize=(WIDTH, height), dpi=DOTS)


def legend(made: Figure, entries: int) -> None:
    """A legend above the axes, of ``entries`` lines; the figure grows beyond what two columns of five take."""
    extra = max(0, (entries + 1) // 2 - 3) * 0.19
    width, height = made.get_size_inches()
    made.set_size_inches(width, height + extra)
    made.legend(loc="outside upper center", ncols=2)


def ink_on(ground: Sequence[float], theme: Theme) -> str:
    """Of the theme's two inks the one with the higher contrast to a ground, red, green and blue from 0 to 1."""
    from matplotlib.colors import to_rgb

    def contrast(ink: str) -> float:
        bright, dark = sorted((_luminance(to_rgb(ink)), _luminance(ground)), reverse=True)
        return (bright + 0.05) / (dark + 0.05)

    return max((theme.ink, theme.ground), key=contrast)


def _luminance(rgb: Sequence[float]) -> float:
    """Relative luminance of an sRGB colour (WCAG 2.2)."""
    red, green, blue = (value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in rgb[:3])
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def png(made: Figure) -> bytes:
    """The figure as PNG of 256 colours, a third of the bytes; the same figure gives the same bytes."""
    import numpy as np
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from PIL import Image

    canvas = FigureCanvasAgg(made)
    canvas.draw()  # once: savefig draws twice, the first time to place things
    image = Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB")
    buffer = io.BytesIO()
    image.quantize(256, dither=Image.Dither.NONE).save(buffer, "PNG", optimize=True)
    return buffer.getvalue()
