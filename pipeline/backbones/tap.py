"""Where a representation is taken from a network; apart from networks, so that a config is read without torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Pooling = Literal["auto", "cls", "mean", "cls+mean"]
LAST = -1  # the layer of a tap: after the last one, and whatever normalisation follows it


@dataclass(frozen=True)
class Tap:
    """Where a representation is taken: from the output of which layer, and how it becomes one vector an image.

    Attributes:
        layer: ``LAST``, or the number of a layer from 0.
        pooling: ``auto`` is what the network's own head does.
    """

    layer: int = LAST
    pooling: Pooling = "auto"
