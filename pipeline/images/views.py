"""Views of an image: all are made from one decode, and each is a pure function of (seed, key, view).

``center`` is the backbone's own evaluation transform; ``random0``, ``random1``, … are the augmentations that the
representations of the paper were cached with (thesis App. D, "Augmentations"); ``blur_1``, ``crop_40``, … are
interventions (:mod:`pipeline.images.interventions`). A new kind of view is one function in :data:`VIEW_KINDS`.

Shapes: V views, H height, W width, C = 3 channels, P parameters.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache, partial

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from pipeline.discovery import unknown_name
from pipeline.images.augmentation import DRAWS, AugmentationConfig, apply, draw
from pipeline.images.center import Made, make_center
from pipeline.images.interventions import GROUPS, STRENGTHS, intervene
from pipeline.images.preprocessing import Preprocessing

__all__ = [
    "VIEW_KINDS",
    "VIEW_PARAMS",
    "AugmentationConfig",
    "Request",
    "ViewsOfImage",
    "expand",
    "make_views",
    "params_of",
    "parse_view",
]

#: What is stored of every view; NaN = does not apply to it. Crop boxes are shares of the upright image's width and
#: height; flip, bicubic and jitter are 0 or 1; brightness, contrast and saturation are factors (1 = unchanged) and
#: jitter_order indexes augmentation.JITTER_ORDERS; image sizes are pixels of the source. The last three are of
#: interventions: σ of a blur in pixels of the view, share of the view under a box, σ of noise in units of [0, 1].
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

#: Kind of view → what is stored beside :data:`VIEW_PARAMS` where a store has such a view: others keep their layout.
MORE_PARAMS: Mapping[str, tuple[str, ...]] = {"jpeg": ("jpeg_quality",)}  # of JPEG, 1 to 100


@dataclass(frozen=True, kw_only=True)
class ViewsOfImage:
    """All views of one image: ``pixels`` uint8 (V, H, W, C), ``params`` float32 (V, P) as in :func:`params_of`."""

    pixels: NDArray[np.uint8]
    params: NDArray[np.float32]


@dataclass(frozen=True, kw_only=True)
class Request:
    """What a view is made of. ``number`` is the digits at the end of the view's name, -1 without any; ``center`` makes
    the view of that name, once for all that ask."""

    image: Image.Image
    number: int
    draws: Callable[[int], NDArray[np.float64]]
    center: Callable[[], Made]
    preprocessing: Preprocessing
    augmentation: AugmentationConfig


def expand(views: Sequence[str]) -> tuple[str, ...]:
    """Names of views, each once, with those of :data:`~pipeline.images.interventions.GROUPS` for a group's name.

    Raises:
        UserError: there is no such view.
    """
    names = tuple(dict.fromkeys(name for view in views for name in GROUPS.get(view, (view,))))
    for name in names:
        parse_view(name)
    return names


def params_of(views: Sequence[str]) -> tuple[str, ...]:
    """The P parameters that are stored of views with these names."""
    kinds = {parse_view(view)[0] for view in views}
    return (*VIEW_PARAMS, *(name for kind, names in MORE_PARAMS.items() if kind in kinds for name in names))


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
        views: names: ``center``, ``random0``, ``random1``, …, ``blur_1``, …
        seed: of the run.
        preprocessing: of the backbone: the size of every view, and the evaluation resize.
        augmentation: of the random views.

    Raises:
        UserError: there is no such view; lists the kinds.
    """
    pixels_VHWC = np.empty((len(views), preprocessing.size, preprocessing.size, 3), np.uint8)
    names = params_of(views)
    params_VP = np.full((len(views), len(names)), np.nan, np.float32)
    center = cache(lambda: make_center(image, preprocessing))
    for place, name in enumerate(views):
        kind, number = parse_view(name)
        request = Request(
            image=image,
            number=number,
            draws=_Draws(seed, key, name),
            center=center,
            preprocessing=preprocessing,
            augmentation=augmentation,
        )
        made = VIEW_KINDS[kind](request)
        pixels_VHWC[place] = np.asarray(made.image)
        size = {"image_width": image.width, "image_height": image.height}
        for param, value in {**made.params, **size}.items():
            params_VP[place, names.index(param)] = value
    return ViewsOfImage(pixels=pixels_VHWC, params=params_VP)


@lru_cache(maxsize=1024)
def parse_view(name: str) -> tuple[str, int]:
    """A view's name → its kind and number.

    Raises:
        UserError: there is no such view.
    """
    match = re.fullmatch(r"([a-z]+?)(?:_?(\d+))?", name)
    kind, digits = match.groups() if match else ("", None)
    number = int(digits or -1)
    numbered = f"_{number}" if kind in STRENGTHS else f"{number}" if kind in NUMBERED else ""
    known = kind in VIEW_KINDS and f"{kind}{numbered}" == name and number in STRENGTHS.get(kind, (number,))
    if not known or (kind in NUMBERED and number < 0):
        weakest = [f"{kind}_{numbers[0]}" for kind, numbers in STRENGTHS.items()]
        raise unknown_name("view", name, ["center", "random0", *weakest])
    return kind, number


class _Draws:
    """Uniform numbers of one view in [0, 1): Philox, keyed by a hash of (seed, key, view)."""

    def __init__(self, seed: int, key: str, view: str) -> None:
        self._name = f"{seed}/{view}/{key}".encode("utf-8", "surrogatepass")

    def __call__(self, count: int) -> NDArray[np.float64]:
        mark = hashlib.blake2b(self._name, digest_size=16).digest()
        raw = np.random.Philox(key=int.from_bytes(mark, "little")).random_raw(count)
        return np.asarray((raw >> np.uint64(11)) * 2.0**-53)


# -- kinds of views


def _center(request: Request) -> Made:
    """The backbone's own evaluation transform."""
    return request.center()


def _random(request: Request) -> Made:
    """The paper's augmentation, see :mod:`pipeline.images.augmentation`."""
    image = request.image
    drawn = draw(image.size, request.augmentation, request.draws(DRAWS).tolist())
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
    return Made(image=apply(drawn, image, request.preprocessing.size), params=params)


def _intervention(kind: str, request: Request) -> Made:
    return intervene(kind, request.number, request.image, request.center(), request.preprocessing, request.draws)


#: Kind of view → how it is made.
VIEW_KINDS: Mapping[str, Callable[[Request], Made]] = {
    "center": _center,
    "random": _random,
    **{kind: partial(_intervention, kind) for kind in STRENGTHS},
}
#: Kinds whose name carries any number: ``random0``.
NUMBERED = frozenset({"random"})
