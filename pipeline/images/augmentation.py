"""The random augmentation of the paper (thesis App. D, "Augmentations"): crop, resize, flip, colour jitter.

What is drawn is kept apart from how it is applied, so that it can be stored beside the representation.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from PIL import Image, ImageEnhance
from pydantic import Field

from pipeline.config import config

ENHANCERS = {
    "brightness": ImageEnhance.Brightness,
    "contrast": ImageEnhance.Contrast,
    "saturation": ImageEnhance.Color,
}
#: The three factors can be applied in these orders.
JITTER_ORDERS = (
    ("brightness", "contrast", "saturation"),
    ("brightness", "saturation", "contrast"),
    ("contrast", "brightness", "saturation"),
    ("contrast", "saturation", "brightness"),
    ("saturation", "brightness", "contrast"),
    ("saturation", "contrast", "brightness"),
)
CROP_ATTEMPTS = 10  # as in timm and torchvision, before the largest allowed central crop is taken
#: Uniform numbers that one augmentation takes: four an attempt to crop, then one for each name in :func:`draw`.
DRAWS = 4 * CROP_ATTEMPTS + 4 + len(ENHANCERS)

Share = Annotated[float, Field(ge=0, le=1)]
PositiveShare = Annotated[float, Field(gt=0, le=1)]
Positive = Annotated[float, Field(gt=0)]


@config
class AugmentationConfig:
    """Random views; the defaults are the paper's (thesis App. D, "Augmentations")."""

    # Area of the crop as a share of the image: uniform between the two.
    scale: tuple[PositiveShare, PositiveShare] = (0.08, 1.0)
    # Width over height of the crop: log-uniform between the two.
    ratio: tuple[Positive, Positive] = (0.75, 1.3333)
    # How often a view is mirrored.
    flip_probability: Share = 0.5
    # How often the colours are jittered. The text says 0.4; the authors' code always did it (1.0).
    jitter_probability: Share = 0.4
    # Brightness, contrast and saturation are multiplied by factors uniform in 1 ± jitter, in random order.
    jitter: Share = 0.4

    def __post_init__(self) -> None:
        for name in ("scale", "ratio"):
            low, high = getattr(self, name)
            if low > high:
                raise ValueError(f"{name} must run from small to large, not from {low} to {high}")


@dataclass(frozen=True, kw_only=True)
class Crop:
    """A box in pixels of the image."""

    left: int
    top: int
    width: int
    height: int


@dataclass(frozen=True, kw_only=True)
class Augmentation:
    """One draw.

    Attributes:
        crop: what is cut out.
        bicubic: the crop is resized bicubically, else bilinearly.
        flip: mirrored.
        jitter: factor by name, in any order; empty = colours unchanged.
        order: index into :data:`JITTER_ORDERS`; means nothing without jitter.
    """

    crop: Crop
    bicubic: bool
    flip: bool
    jitter: dict[str, float]
    order: int


def draw(size: tuple[int, int], augmentation: AugmentationConfig, u: Sequence[float]) -> Augmentation:
    """Turn :data:`DRAWS` uniform numbers in [0, 1) into an augmentation of an image of ``size`` (width, height)."""
    bicubic, flip, jitter, order, *factors = u[4 * CROP_ATTEMPTS :]
    jittered = jitter < augmentation.jitter_probability
    named = {name: 1 + augmentation.jitter * (2 * x - 1) for name, x in zip(ENHANCERS, factors, strict=True)}
    return Augmentation(
        crop=draw_crop(size, augmentation, u),
        bicubic=bicubic < 0.5,
        flip=flip < augmentation.flip_probability,
        jitter=named if jittered else {},
        order=int(order * len(JITTER_ORDERS)),
    )


def draw_crop(size: tuple[int, int], augmentation: AugmentationConfig, u: Sequence[float]) -> Crop:
    """A crop of random area and ratio: ten attempts to place one, then the largest central crop within the ratios.

    The scheme of Szegedy et al. (Going deeper with convolutions, CVPR 2015, Sec. 6) as torchvision and timm carry it
    out. Attempt i takes u[4i : 4i + 4].
    """
    image_width, image_height = size
    (smallest, largest), (tall, wide) = augmentation.scale, augmentation.ratio
    for attempt in range(CROP_ATTEMPTS):
        area_u, ratio_u, left_u, top_u = u[4 * attempt : 4 * attempt + 4]
        area = (smallest + (largest - smallest) * area_u) * image_width * image_height
        ratio = math.exp(math.log(tall) + (math.log(wide) - math.log(tall)) * ratio_u)
        width, height = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < width <= image_width and 0 < height <= image_height:
            left = int(left_u * (image_width - width + 1))
            top = int(top_u * (image_height - height + 1))
            return Crop(left=left, top=top, width=width, height=height)
    ratio = image_width / image_height
    width = image_width if ratio <= wide else max(1, round(image_height * wide))
    height = image_height if ratio >= tall else max(1, round(image_width / tall))
    return Crop(left=(image_width - width) // 2, top=(image_height - height) // 2, width=width, height=height)


def apply(augmentation: Augmentation, image: Image.Image, size: int) -> Image.Image:
    """The augmented view, of ``size`` × ``size`` pixels."""
    filter_ = Image.Resampling.BICUBIC if augmentation.bicubic else Image.Resampling.BILINEAR
    view = cut(image, augmentation.crop).resize((size, size), filter_)
    if augmentation.flip:
        view = view.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    if augmentation.jitter:
        for name in JITTER_ORDERS[augmentation.order]:
            view = ENHANCERS[name](view).enhance(augmentation.jitter[name])
    return view


def cut(image: Image.Image, crop: Crop) -> Image.Image:
    """The crop of an RGB image. ``Image.crop`` gives the same, but judges its size by a limit global to the process."""
    made = Image.new("RGB", (crop.width, crop.height))
    made.paste(image, (-crop.left, -crop.top))
    return made
