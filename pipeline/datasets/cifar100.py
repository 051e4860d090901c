"""CIFAR-100: 60,000 photographs of 32 × 32 pixels, a hundred classes in twenty groups of five."""

from __future__ import annotations

from typing import ClassVar, Literal

from pipeline.config import config
from pipeline.datasets._cifar import Cifar, CifarConfig
from pipeline.datasets._published import how_to_get
from pipeline.datasets.base import About


class Cifar100(Cifar):
    """``root`` is ``cifar-100-binary`` or ``cifar-100-python``, or the folder that one of them lies in."""

    about: ClassVar[About] = About(
        title="CIFAR-100",
        source="www.cs.toronto.edu/~kriz/cifar.html",
        licence="not stated by its authors",
        citation="Krizhevsky, Learning multiple layers of features from tiny images, University of Toronto, 2009",
        class_count=100,
        sizes={"train": 50_000, "test": 10_000, "all": 60_000},
    )
    inside = ("cifar-100-binary", "cifar-100-python")
    remedy = how_to_get(
        about,
        "cifar-100-binary.tar.gz (or cifar-100-python.tar.gz)",
        "train.bin, test.bin, fine_label_names.txt and coarse_label_names.txt",
    )
    parts: ClassVar = {"train": ("train",), "test": ("test",), "all": ("train", "test")}
    before = 2
    meta = "meta"

    @config
    class Config(CifarConfig):
        """Which of its images and labels."""

        name: str = "cifar100"
        # fine: 100 classes; coarse: the 20 groups.
        labels: Literal["fine", "coarse"] = "fine"

    def what(self) -> tuple[int, str, str, str]:
        """The coarse label comes first."""
        kind = self.config.labels
        return int(kind == "fine"), f"{kind}_label_names.txt", f"{kind}_labels", f"{kind}_label_names"
