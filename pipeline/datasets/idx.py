"""Any images in IDX files (MNIST and its kin)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from pipeline.config import config
from pipeline.datasets._idx import IdxDataset
from pipeline.datasets._listed import ListedConfig
from pipeline.datasets.base import About


class Idx(IdxDataset):
    """One file of images (N, H, W) or (N, H, W, 3) and one of labels (N), gzipped or not."""

    about: ClassVar[About] = About(
        title="Images in IDX files",
        source="the user's own",
        licence="not stated: ask whoever owns the images",
    )

    @config
    class Config(ListedConfig):
        """Which files."""

        name: str = "idx"
        # File of the images, below root.
        images: str = "train-images-idx3-ubyte.gz"
        # File of the labels, below root.
        labels: str = "train-labels-idx1-ubyte.gz"
        # Name of each label, in order; none: the numbers are the names.
        class_names: tuple[str, ...] = ()

    def parts(self) -> Sequence[tuple[str, Path, Path]]:
        """The one part, called as the file of the images."""
        name = self.config.images.split(".")[0]
        return [(name, self.config.root / self.config.images, self.config.root / self.config.labels)]

    def names(self) -> Sequence[str]:
        """As configured."""
        names: tuple[str, ...] = self.config.class_names
        return names
