"""Interventions: what is done to the view ``center`` to make it harder to tell what it shows, at named strengths.

``blur_3`` is the third of five strengths of a blur, ``crop_40`` the middle of the view, 40 % of its side. All are made
of the one decode, before the backbone's normalisation, and each is a function of (seed, key, view) alone.

=========  ==================================================  ================================  =====================
view       what is done                                        strengths                         recorded as
=========  ==================================================  ================================  =====================
crop_10 …  the central part of the view, cut out of the        10, 20, … 100 % of the side       crop box
           source and resized; ``crop_100`` is ``center``
blur_1 …   Gaussian blur                                       σ = 1, 2, 3, 4, 6 pixels of 224   blur_sigma, in pixels
box_1 …    a grey box, at a place drawn for each image         10, 20, 35, 50, 70 % of the area  box_share
noise_1 …  Gaussian noise on every value, cut at its range     σ = .08, .12, .18, .26, .38       noise_sigma
zoom_1 …   the central part of the view's own pixels enlarged  1.25, 1.5, 2, 3, 4 times          crop box
jpeg_1 …   JPEG, coded and decoded                             quality 25, 18, 15, 10, 7         jpeg_quality
=========  ==================================================  ================================  =====================

Crops of so much of an image are those of the thesis (Ch. 3, *Measuring Aleatoric Uncertainty*: 25 to 100 %). Blur,
boxes, zoom and noise are the interventions of its Ch. 5 (Sec. 4.5, Fig. 6), which does not print strengths: blur, noise
and JPEG quality have those of ImageNet-C (Hendrycks and Dietterich, *Benchmarking neural network robustness to common
corruptions and perturbations*, ICLR 2019; ``gaussian_blur``, ``gaussian_noise`` and ``jpeg_compression`` of their
code), where an image has 224 pixels: σ of the blur is scaled with the side of the view. ImageNet-C has neither boxes
nor zoom; their strengths are ours.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFilter

from pipeline.images.center import RESAMPLING, Made
from pipeline.images.preprocessing import Preprocessing

REFERENCE_SIDE = 224  # pixels of an image of ImageNet-C
GREY = (128, 128, 128)
CROPS = tuple(range(10, 101, 10))  # per cent of the side

Draws = Callable[[int], NDArray[np.float64]]  # so many uniform numbers in [0, 1)
Change = Callable[[Image.Image, float, Draws], tuple[Image.Image, dict[str, float]]]


def blur(view: Image.Image, strength: float, draws: Draws) -> tuple[Image.Image, dict[str, float]]:
    """σ in pixels of an image of 224; Pillow's blur, three passes of a box, in integers: the same bytes everywhere."""
    sigma = strength * view.width / REFERENCE_SIDE
    return view.filter(ImageFilter.GaussianBlur(sigma)), {"blur_sigma": sigma}


def box(view: Image.Image, strength: float, draws: Draws) -> tuple[Image.Image, dict[str, float]]:
    """A square of ``strength`` of the area, grey; its place is uniform among those where it fits."""
    side = round(view.width * strength**0.5)
    left, top = (int(u * (view.width - side + 1)) for u in draws(2))
    covered = view.copy()
    covered.paste(GREY, (left, top, left + side, top + side))
    return covered, {"box_share": side**2 / view.width**2}


def noise(view: Image.Image, strength: float, draws: Draws) -> tuple[Image.Image, dict[str, float]]:
    """σ in units of [0, 1]; normal numbers by Box and Muller's transform, since numpy's stream of them may change."""
    pixels = np.asarray(view, dtype=np.float64) / 255
    half = -(-pixels.size // 2)
    u = draws(2 * half)
    radius, angle = np.sqrt(-2 * np.log1p(-u[:half])), 2 * np.pi * u[half:]
    normal = np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])[: pixels.size].reshape(pixels.shape)
    noisy = np.clip(pixels + strength * normal, 0, 1)
    return Image.fromarray((noisy * 255).round().astype(np.uint8)), {"noise_sigma": strength}


def jpeg(view: Image.Image, strength: float, draws: Draws) -> tuple[Image.Image, dict[str, float]]:
    """Quality as libjpeg counts it, 1 to 100."""
    buffer = io.BytesIO()
    view.save(buffer, "JPEG", quality=int(strength))
    return Image.open(buffer).convert("RGB"), {"jpeg_quality": strength}


@dataclass(frozen=True, kw_only=True)
class Intervention:
    """What is done at each of its strengths, the weakest first."""

    strengths: tuple[float, ...]
    change: Change


CHANGES: Mapping[str, Intervention] = {
    "blur": Intervention(strengths=(1, 2, 3, 4, 6), change=blur),
    "box": Intervention(strengths=(0.10, 0.20, 0.35, 0.50, 0.70), change=box),
    "noise": Intervention(strengths=(0.08, 0.12, 0.18, 0.26, 0.38), change=noise),
    "jpeg": Intervention(strengths=(25, 18, 15, 10, 7), change=jpeg),
}
ZOOMS = (1.25, 1.5, 2.0, 3.0, 4.0)
#: Kind of intervention → the numbers that its views have, the weakest first.
STRENGTHS: Mapping[str, tuple[int, ...]] = {
    "crop": CROPS[::-1],
    "zoom": tuple(range(1, len(ZOOMS) + 1)),
    **{kind: tuple(range(1, len(found.strengths) + 1)) for kind, found in CHANGES.items()},
}
#: What stands for several views where views are named.
GROUPS: Mapping[str, tuple[str, ...]] = {
    "crops": tuple(f"crop_{percent}" for percent in CROPS),
    "interventions": tuple(
        f"{kind}_{number}" for kind in ("blur", "box", "noise", "zoom", "jpeg") for number in STRENGTHS[kind]
    ),
}


def intervene(
    kind: str, number: int, image: Image.Image, center: Made, preprocessing: Preprocessing, draws: Draws
) -> Made:
    """One view.

    Args:
        kind: of :data:`STRENGTHS`.
        number: of its numbers.
        image: the whole image.
        center: its view ``center``.
        preprocessing: of the backbone.
        draws: of this view.
    """
    if kind == "crop":
        return _crop(number / 100, image, center, preprocessing)
    if kind == "zoom":
        return _zoom(ZOOMS[number - 1], center, preprocessing)
    intervention = CHANGES[kind]
    changed, params = intervention.change(center.image, intervention.strengths[number - 1], draws)
    return Made(image=changed, params={**center.params, **params})


def _crop(share: float, image: Image.Image, center: Made, preprocessing: Preprocessing) -> Made:
    """The middle of what ``center`` shows, ``share`` of its side, with all the detail that the source has there."""
    if share == 1:
        return center
    params = _middle(center.params, share)
    left, top = params["crop_left"] * image.width, params["crop_top"] * image.height
    width, height = params["crop_width"] * image.width, params["crop_height"] * image.height
    size, filter_ = (preprocessing.size,) * 2, RESAMPLING[preprocessing.interpolation]
    return Made(image=image.resize(size, filter_, box=(left, top, left + width, top + height)), params=params)


def _zoom(factor: float, center: Made, preprocessing: Preprocessing) -> Made:
    """The middle of the view, enlarged: it has no more detail than ``center`` had there."""
    side = center.image.width
    margin = (side - side / factor) / 2
    part = (margin, margin, side - margin, side - margin)
    made = center.image.resize((side, side), RESAMPLING[preprocessing.interpolation], box=part)
    return Made(image=made, params=_middle(center.params, 1 / factor))


def _middle(params: Mapping[str, float], share: float) -> dict[str, float]:
    """The crop box of the middle of a view, ``share`` of its side."""
    width, height = params["crop_width"], params["crop_height"]
    return {
        **params,
        "crop_left": params["crop_left"] + width * (1 - share) / 2,
        "crop_top": params["crop_top"] + height * (1 - share) / 2,
        "crop_width": width * share,
        "crop_height": height * share,
    }
