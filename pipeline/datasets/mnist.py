"""MNIST: 60,000 + 10,000 grey images of 28 × 28 pixels, handwritten digits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

from pipeline.config import config
from pipeline.datasets._idx import MnistFiles
from pipeline.datasets._listed import ListedConfig
from pipeline.datasets._published import how_to_get
from pipeline.datasets.base import About


class Mnist(MnistFiles):
    """``root`` holds the four files, or ``MNIST/raw`` with them, as torchvision has it."""

    about: ClassVar[About] = About(
        title="MNIST",
        source="yann.lecun.com/exdb/mnist",
        licence="not stated by its authors",
        citation="LeCun, Bottou, Bengio and Haffner, Gradient-based learning applied to document recognition, "
        "Proceedings of the IEEE, 1998",
        class_count=10,
        sizes={"train": 60_000, "test": 10_000, "all": 70_000},
    )
    inside = ("MNIST/raw",)
    remedy = how_to_get(
        about,
        "the four files",
        "train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte and "
        "t10k-labels-idx1-ubyte, gzipped or not",
    )

    @config
    class Config(ListedConfig):
        """Which of its images."""

        name: str = "mnist"
        # train: 60,000 images; test: 10,000.
        part: Literal["train", "test", "all"] = "test"

    def names(self) -> Sequence[str]:
        """The digits."""
        return [str(digit) for digit in range(10)]
