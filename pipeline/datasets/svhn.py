"""Street View House Numbers, cropped: 99,289 digits of 32 × 32 pixels, and what is beside them.

Of the authors' files this reads train and test; ``extra_32x32.mat`` (531,131 easier digits) is not used by VTAB.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np

from pipeline.config import config
from pipeline.datasets._arrays import ArrayDataset, Pixels, fit
from pipeline.datasets._listed import ListedConfig
from pipeline.datasets._mat import read_mat
from pipeline.datasets._published import how_to_get
from pipeline.datasets.base import About

BATCHES = {"train": ("train",), "test": ("test",), "all": ("train", "test")}


class Svhn(ArrayDataset):
    """``root`` holds the two files; the label 10 of the files is the digit 0."""

    about: ClassVar[About] = About(
        title="Street View House Numbers",
        source="ufldl.stanford.edu/housenumbers",
        licence="non-commercial use only",
        citation="Netzer, Wang, Coates, Bissacco, Wu and Ng, Reading digits in natural images with unsupervised "
        "feature learning, NIPS workshop on deep learning and unsupervised feature learning, 2011",
        class_count=10,
        sizes={"train": 73_257, "test": 26_032, "all": 99_289},
    )
    remedy = how_to_get(about, "the files of format 2", "train_32x32.mat and test_32x32.mat")

    @config
    class Config(ListedConfig):
        """Which of its digits."""

        name: str = "svhn"
        # train: 73,257 images; test: 26,032.
        part: Literal["train", "test", "all"] = "test"

    def needed(self) -> Sequence[str]:
        """The files of the part."""
        return [path.name for _, path in self.batches()]

    def batches(self) -> Sequence[tuple[str, Path]]:
        """A file each."""
        return [(name, self.folder() / f"{name}_32x32.mat") for name in BATCHES[self.config.part]]

    def names(self) -> Sequence[str]:
        """The digits."""
        return [str(digit) for digit in range(10)]

    def labels(self, path: Path) -> Sequence[int]:
        """0 to 9, the digits."""
        return _read(path)[1]

    def pixels(self, path: Path, index: int) -> Pixels:
        """(32, 32, 3)."""
        return _read(path)[0][index]


@lru_cache(maxsize=2)
def _read(path: Path) -> tuple[Pixels, list[int]]:
    """Images (N, 32, 32, 3) and digits."""
    images, labels = read_mat(path, "X", "y")
    labels = np.atleast_1d(labels)
    images = images.reshape(*images.shape[:3], -1).transpose(3, 0, 1, 2)  # (32, 32, 3, N), N left out where it is 1
    fit(path, images, labels, (32, 32, 3))
    return images, [0 if label == 10 else int(label) for label in labels]
