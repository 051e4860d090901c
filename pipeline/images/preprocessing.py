"""What a backbone wants of an image; apart from the backbone, so that processes that only decode need no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Interpolation = Literal["bilinear", "bicubic", "lanczos"]


@dataclass(frozen=True, kw_only=True)
class Preprocessing:
    """The backbone's own evaluation transform, resolved and recorded.

    Attributes:
        size: side of the square input in pixels.
        mean, std: of each RGB channel, in units of [0, 1].
        crop: share of the resized side that the centre crop keeps (timm's ``crop_pct``).
        interpolation: of the evaluation resize.
    """

    size: int
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    crop: float
    interpolation: Interpolation
