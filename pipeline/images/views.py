"""Views of an image: all are made from one decode, and each is a pure function of (seed, key, view).

``center`` is the backbone's own evaluation transform; ``random0``, ``random1``, … are the augmentations that the
representations of the paper were cached with (thesis App. D, "Augmentations"). A new kind of view is one function in
:data:`VIEW_KINDS`.

Shapes: V views, H height, W width, C = 3 channels, P parameters.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from pipeline.discovery import unknown_name
from pipeline.images.augmentation import DRAWS, AugmentationConfig, Crop, apply, cut, draw
from pipeline.images.preprocessing import Preprocessing

__all__ = [
    "VIEW_KINDS",
    "VIEW_PARAMS",
    "AugmentationConfig",
    "Request",
    "ViewsOfImage",
    "make_views",
    "parse_view",
]

#: What is stored of every view; NaN = does not apply to it. Crop boxes are shares of the upright image's width and
#: height; flip, bicubic and jitter are 0 or 1; brightness, contrast and saturation are factors (1 = unchanged) and
#: jitter_order indexes augmentation.JITTER_ORDERS; image sizes are pixels of the source. The last three are of degraded
#: views: σ of a blur in pixels, share of the image under a box, σ of noise in units of [0, 1].
VIEW_PARAMS: tuple[str, ...] = (
    "crop_left",
    "crop_top",
    "crop_width",
    "crop_height",
    "flip",
    "bicubic",
    "jitter",
    "brightness",
    "contrast",
    "saturation",
    "jitter_order",
    "image_width",
    "image_height",
    "blur_sigma",
    "box_share",
    "noise_sigma",
)

RESAMPLING = {
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
}
ELONGATED = 100  # longer side over shorter side


@dataclass(frozen=True, kw_only=True)
class ViewsOfImage:
    """All views of one image: ``pixels`` uint8 (V, H, W, C), ``params`` float32 (V, P) as in :data:`VIEW_PARAMS`."""

    pixels: NDArray[np.uint8]
    params: NDArray[np.float32]


@dataclass(frozen=True, kw_only=True)
class Request:
    """What a view is made of. ``number`` is the digits at the end of the view's name, -1 without any."""

    image: Image.Image
    number: int
    draws: Callable[[int], list[float]]
    preprocessing: Preprocessing
    augmentation: AugmentationConfig


@dataclass(frozen=True, kw_only=True)
class _Made:
    image: Image.Image
    params: Mapping[str, float]


def make_views(
    image: Image.Image,
    key: str,
    *,
    views: Sequence[str],
    seed: int,
    preprocessing: Preprocessing,
    augmentation: AugmentationConfig,
) -> ViewsOfImage:
    """Make the named views of one decoded image.

    The random numbers of a view are a function of (seed, key, view name) alone: neither order, nor threads, nor the
    other views change them.

    Args:
        image: an upright RGB image, as :func:`pipeline.images.decode.decode` gives it.
        key: of the sample.
        views: names: ``center``, ``random0``, ``random1``, …
        seed: of the run.
        preprocessing: of the backbone: the size of every view, and the evaluation resize.
        augmentation: of the random views.

    Raises:
        UserError: there is no such view; lists the kinds.
    """
    pixels_VHWC = np.empty((len(views), preprocessing.size, preprocessing.size, 3), np.uint8)
    params_VP = np.full((len(views), len(VIEW_PARAMS)), np.nan, np.float32)
    for place, name in enumerate(views):
        kind, number = parse_view(name)
        draws = _Draws(seed, key, name)
        made = VIEW_KINDS[kind](
            Request(image=image, number=number, draws=draws, preprocessing=preprocessing, augmentation=augmentation)
        )
        pixels_VHWC[place] = np.asarray(made.image)
        size = {"image_width": image.width, "image_height": image.height}
        for param, value in {**made.params, **size}.items():
            params_VP[place, VIEW_PARAMS.index(param)] = value
    return ViewsOfImage(pixels=pixels_VHWC, params=params_VP)


@lru_cache(maxsize=1024)
def parse_view(name: str) -> tuple[str, int]:
    """A view's name → its kind and number.

    Raises:
        UserError: there is no such view.
    """
    match = re.fullmatch(r"([a-z_]+)(\d*)", name)
    kind, digits = match.groups() if match else ("", "")
    if kind not in VIEW_KINDS or (kind in NUMBERED) != bool(digits):
        raise unknown_name("view", name, [f"{kind}0" if kind in NUMBERED else kind for kind in VIEW_KINDS])
    return kind, int(digits or -1)


class _Draws:
    """Uniform numbers of one view in [0, 1): Philox, keyed by a hash of (seed, key, view)."""

    def __init__(self, seed: int, key: str, view: str) -> None:
        self._name = f"{seed}/{view}/{key}".encode("utf-8", "surrogatepass")

    def __call__(self, count: int) -> list[float]:
        mark = hashlib.blake2b(self._name, digest_size=16).digest()
        raw = np.random.Philox(key=int.from_bytes(mark, "little")).random_raw(count)
        return [float(x) for x in (raw >> np.uint64(11)) * 2.0**-53]


# -- center


def _center(request: Request) -> _Made:
    """Resize the shorter side to ⌊size / crop⌋, then cut the central square: timm's evaluation transform, exactly.

    Cutting the square out of the source first would save work but change bytes, because Pillow orders its two passes
    by the shape. Only of images longer than :data:`ELONGATED` the ends are cut first, lest the resized one fill memory.
    """
    image, p = request.image, request.preprocessing
    short_side = min(image.size)
    kept = Crop(
        left=max(0, image.width - ELONGATED * short_side) // 2,
        top=max(0, image.height - ELONGATED * short_side) // 2,
        width=min(image.width, ELONGATED * short_side),
        height=min(image.height, ELONGATED * short_side),
    )
    if (kept.width, kept.height) != image.size:
        image = cut(image, kept)
    # torchvision truncates the longer side and rounds the offset of the crop
    width, height = (math.floor(p.size / p.crop) * side // short_side for side in image.size)
    left, top = round((width - p.size) / 2), round((height - p.size) / 2)
    resized = image.resize((width, height), RESAMPLING[p.interpolation])
    made = resized.crop((left, top, left + p.size, top + p.size))
    scale = short_side / min(width, height)
    params = {
        "crop_left": (kept.left + left * scale) / request.image.width,
        "crop_top": (kept.top + top * scale) / request.image.height,
        "crop_width": p.size * scale / request.image.width,
        "crop_height": p.size * scale / request.image.height,
        "flip": 0.0,
        "bicubic": float(p.interpolation == "bicubic"),
        "jitter": 0.0,
    }
    return _Made(image=made, params=params)


# -- random


def _random(request: Request) -> _Made:
    """The paper's augmentation, see :mod:`pipeline.images.augmentation`."""
    image = request.image
    drawn = draw(image.size, request.augmentation, request.draws(DRAWS))
    params = {
        "crop_left": drawn.crop.left / image.width,
        "crop_top": drawn.crop.top / image.height,
        "crop_width": drawn.crop.width / image.width,
        "crop_height": drawn.crop.height / image.height,
        "flip": float(drawn.flip),
        "bicubic": float(drawn.bicubic),
        "jitter": float(bool(drawn.jitter)),
        **drawn.jitter,
        **({"jitter_order": drawn.order} if drawn.jitter else {}),
    }
    return _Made(image=apply(drawn, image, request.preprocessing.size), params=params)


#: Kind of view → how it is made.
VIEW_KINDS: Mapping[str, Callable[[Request], _Made]] = {"center": _center, "random": _random}
#: Kinds whose name carries a number: ``random0``.
NUMBERED = frozenset({"random"})
