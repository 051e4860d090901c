"""Fashion-MNIST: 60,000 + 10,000 grey images of 28 × 28 pixels, 10 classes of clothing.

As an upstream it is a documented failure: six of its classes are too narrow a world for uncertainties to transfer to
the other four.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

from pipeline.config import config
from pipeline.datasets._idx import MnistFiles
from pipeline.datasets._listed import ListedConfig
from pipeline.datasets.base import About

CLASSES = (
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)


class FashionMnist(MnistFiles):
    """``root`` is the unpacked Debian package ``dataset-fashion-mnist``, or the folder of the four files."""

    about: ClassVar[About] = About(
        title="Fashion-MNIST",
        source="Debian package dataset-fashion-mnist (github.com/zalandoresearch/fashion-mnist)",
        licence="MIT",
        citation="Xiao, Rasul and Vollgraf, Fashion-MNIST: a novel image dataset for benchmarking machine learning "
        "algorithms, arXiv:1708.07747, 2017",
        class_count=10,
        sizes={"train": 60_000, "test": 10_000, "all": 70_000},
    )
    inside = ("usr/share/datasets/fashion-mnist", "FashionMNIST/raw")  # Debian's package; torchvision
    remedy = (
        "Get it without root by: apt-get download dataset-fashion-mnist && "
        "dpkg-deb -x dataset-fashion-mnist_*.deb {root}, or set dataset.root"
    )

    @config
    class Config(ListedConfig):
        """Which of its images."""

        name: str = "fashion_mnist"
        # train: 60,000 images; test: 10,000.
        part: Literal["train", "test", "all"] = "train"

    def names(self) -> Sequence[str]:
        """The authors' names, in their order."""
        return CLASSES
