"""Pairs of scikit-learn digits: 10 × 10 classes that need no download.

The 1,797 digits of 8 × 8 pixels that come with scikit-learn are set side by side, so the class ``"47"`` shows a four on
the left and a seven on the right. A share of the images has a grey box over part of one digit, which makes them truly
ambiguous. 70 classes are *seen*, 30 are *unseen*, and the digits themselves are split by instance, so a zero-shot score
on ``unseen`` says something about classes and strokes that no training ever met.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import cached_property, lru_cache
from typing import Annotated, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from pydantic import Field

from pipeline.config import config
from pipeline.datasets._arrays import png
from pipeline.datasets._digits import digits
from pipeline.datasets.base import About, Dataset, LabelledImage, mixed_order
from pipeline.places import LocalPath

Split = Literal["backbone", "seen", "unseen"]

DIGIT = 21  # side of one digit on the canvas, in pixels
CANVAS = 2 * DIGIT  # side of the square canvas
SHIFT = 2  # largest vertical distance of the pair from the middle, in pixels
GREY = 128  # of the box that hides
SEEN_CLASSES = 70
# Tenths of the digit instances that each split draws from; disjoint by construction.
POOLS: dict[Split, tuple[int, ...]] = {"backbone": (0, 1, 2, 3), "seen": (4, 5, 6), "unseen": (7, 8, 9)}


class DigitPairs(Dataset):
    """Two digits side by side, named "00" to "99", drawn by a counter-based generator from (seed, key)."""

    about: ClassVar[About] = About(
        title="Pairs of scikit-learn digits",
        source="sklearn.datasets.load_digits (test set of the UCI Optical Recognition of Handwritten Digits)",
        licence="BSD-3-Clause (scikit-learn), CC BY 4.0 (UCI)",
        citation="Alpaydin and Kaynak, Optical recognition of handwritten digits, UCI, 1998",
    )

    @config
    class Config:
        """What is drawn."""

        # Shown in reports.
        name: str = "digit_pairs"
        # Not used: the digits come with scikit-learn.
        root: LocalPath | None = None
        # backbone: seen classes, digits for training the small ViT. seen: the same classes, other digits.
        # unseen: the other classes, digits that neither of the two has.
        split: Split = "seen"
        # Images drawn of each class.
        images_per_class: Annotated[int, Field(ge=1, le=100_000)] = 40
        # Share of the images in which part of one digit is covered.
        hidden: Annotated[float, Field(ge=0, le=1)] = 0.3
        # Of the drawing; another seed gives other pairs of the same pool.
        seed: Annotated[int, Field(ge=0)] = 0

    def check(self) -> None:
        """Nothing can be missing: the digits come with scikit-learn."""

    def class_names(self) -> list[str]:
        """70 names for ``backbone`` and ``seen``, 30 for ``unseen``, in ascending order."""
        seen, unseen = class_split()
        return list(unseen if self.config.split == "unseen" else seen)

    def __len__(self) -> int:
        return len(self.class_names()) * int(self.config.images_per_class)

    def images(self) -> Iterator[LabelledImage]:
        """PNG images of 42 × 42 grey pixels, classes mixed."""
        for key in self.keys:
            yield LabelledImage(key=key, class_name=class_of(key), data=png(self.pixels(key)), extension="png")

    @cached_property
    def keys(self) -> list[str]:
        """``<split>/<class name>/<number>`` of every image, classes mixed."""
        count = self.config.images_per_class
        keys = [f"{self.config.split}/{name}/{index:05d}" for name in self.class_names() for index in range(count)]
        return [keys[index] for index in mixed_order(keys)]

    def pixels(self, key: str) -> NDArray[np.uint8]:
        """The image of ``key`` as uint8 of shape (42, 42): the same whatever was drawn before it."""
        mark = hashlib.blake2b(f"{self.config.seed}/{key}".encode(), digest_size=16).digest()
        generator = np.random.Generator(np.random.Philox(key=np.frombuffer(mark, np.uint64)))
        canvas = np.zeros((CANVAS, CANVAS), np.uint8)
        top = (CANVAS - DIGIT) // 2 + int(generator.integers(-SHIFT, SHIFT + 1))
        band = canvas[top : top + DIGIT]
        for place, digit in enumerate(class_of(key)):
            pool = digit_pools()[self.config.split, int(digit)]
            band[:, place * DIGIT :][:, :DIGIT] = _enlarged(int(pool[generator.integers(len(pool))]))
        if generator.random() < self.config.hidden:
            _hide(band, generator)
        return canvas


def class_of(key: str) -> str:
    """The class name in a key."""
    return key.split("/")[1]


def _hide(band: NDArray[np.uint8], generator: np.random.Generator) -> None:
    """Cover 40 to 90 % of one digit's width, from its left or right edge, over its whole height."""
    width = round(DIGIT * generator.uniform(0.4, 0.9))
    left = DIGIT * int(generator.integers(2)) + int(generator.integers(2)) * (DIGIT - width)
    band[:, left : left + width] = GREY


@lru_cache(maxsize=1)
def class_split() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The 70 seen and the 30 unseen class names: fixed, by hash of the name alone."""
    every = [f"{index:02d}" for index in range(100)]
    order = [every[index] for index in mixed_order(every)]
    return tuple(sorted(order[:SEEN_CLASSES])), tuple(sorted(order[SEEN_CLASSES:]))


@lru_cache(maxsize=1)
def digit_pools() -> dict[tuple[Split, int], NDArray[np.int64]]:
    """(split, digit) → indices into ``load_digits``; the three splits share no instance."""
    _, target = digits()
    tenth = np.empty(len(target), np.int64)
    tenth[mixed_order([f"digit/{index}" for index in range(len(target))])] = np.arange(len(target)) % 10
    return {
        (split, digit): np.flatnonzero((target == digit) & np.isin(tenth, tenths))
        for split, tenths in POOLS.items()
        for digit in range(10)
    }


@lru_cache(maxsize=2048)
def _enlarged(instance: int) -> NDArray[np.uint8]:
    """One digit as uint8 of shape (21, 21)."""
    small = digits()[0][instance] * (255 / 16)  # the source counts 0 to 16
    image = Image.fromarray(small.round().astype(np.uint8))
    return np.asarray(image.resize((DIGIT, DIGIT), Image.Resampling.BICUBIC))
