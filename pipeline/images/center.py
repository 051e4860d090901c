"""The view ``center``: the backbone's own evaluation transform, and where in the image it looked."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from PIL import Image

from pipeline.images.augmentation import Crop, cut
from pipeline.images.preprocessing import Preprocessing

RESAMPLING = {
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
}
ELONGATED = 100  # longer side over shorter side


@dataclass(frozen=True, kw_only=True)
class Made:
    """A view, and those of its parameters that apply to it."""

    image: Image.Image
    params: Mapping[str, float]


def make_center(image: Image.Image, preprocessing: Preprocessing) -> Made:
    """Resize the shorter side to ⌊size / crop⌋, then cut the central square: timm's evaluation transform, exactly.

    Cutting the square out of the source first would save work but change bytes, because Pillow orders its two passes
    by the shape. Only of images longer than :data:`ELONGATED` the ends are cut first, lest the resized one fill memory.
    """
    p = preprocessing
    short_side = min(image.size)
    kept = Crop(
        left=max(0, image.width - ELONGATED * short_side) // 2,
        top=max(0, image.height - ELONGATED * short_side) // 2,
        width=min(image.width, ELONGATED * short_side),
        height=min(image.height, ELONGATED * short_side),
    )
    part = image if (kept.width, kept.height) == image.size else cut(image, kept)
    # torchvision truncates the longer side and rounds the offset of the crop
    width, height = (math.floor(p.size / p.crop) * side // short_side for side in part.size)
    left, top = round((width - p.size) / 2), round((height - p.size) / 2)
    resized = part.resize((width, height), RESAMPLING[p.interpolation])
    made = resized.crop((left, top, left + p.size, top + p.size))
    scale = short_side / min(width, height)
    params = {
        "crop_left": (kept.left + left * scale) / image.width,
        "crop_top": (kept.top + top * scale) / image.height,
        "crop_width": p.size * scale / image.width,
        "crop_height": p.size * scale / image.height,
        "flip": 0.0,
        "bicubic": float(p.interpolation == "bicubic"),
        "jitter": 0.0,
    }
    return Made(image=made, params=params)
