"""CIFAR-10: 60,000 photographs of 32 × 32 pixels, ten classes of animals and vehicles."""

from __future__ import annotations

from typing import ClassVar

from pipeline.config import config
from pipeline.datasets._cifar import Cifar, CifarConfig
from pipeline.datasets._published import how_to_get
from pipeline.datasets.base import About

TRAIN, TEST = tuple(f"data_batch_{number}" for number in range(1, 6)), ("test_batch",)


class Cifar10(Cifar):
    """``root`` is ``cifar-10-batches-bin`` or ``cifar-10-batches-py``, or the folder that one of them lies in."""

    about: ClassVar[About] = About(
        title="CIFAR-10",
        source="www.cs.toronto.edu/~kriz/cifar.html",
        licence="not stated by its authors",
        citation="Krizhevsky, Learning multiple layers of features from tiny images, University of Toronto, 2009",
        class_count=10,
        sizes={"train": 50_000, "test": 10_000, "all": 60_000},
    )
    collection: ClassVar[str | None] = "CIFAR-10"
    inside = ("cifar-10-batches-bin", "cifar-10-batches-py")
    remedy = how_to_get(
        about,
        "cifar-10-binary.tar.gz (or cifar-10-python.tar.gz)",
        "data_batch_1.bin to data_batch_5.bin, test_batch.bin and batches.meta.txt",
    )
    parts: ClassVar = {"train": TRAIN, "test": TEST, "all": (*TRAIN, *TEST)}
    before = 1
    meta = "batches.meta"

    @config
    class Config(CifarConfig):
        """Which of its images."""

        name: str = "cifar10"

    def what(self) -> tuple[int, str, str, str]:
        """There is one label."""
        return 0, "batches.meta.txt", "labels", "label_names"
