"""Describable Textures (DTD): 5,640 pictures of 47 textures, 120 each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from pipeline.config import config
from pipeline.datasets._listed import ListedConfig
from pipeline.datasets._listing import Entry
from pipeline.datasets._published import PublishedFiles, how_to_get, lines
from pipeline.datasets.base import About

PARTS = {"train": ("train",), "val": ("val",), "test": ("test",), "all": ("train", "val", "test")}


class Dtd(PublishedFiles):
    """``root`` is ``dtd`` or the folder that it lies in."""

    about: ClassVar[About] = About(
        title="Describable Textures Dataset",
        source="www.robots.ox.ac.uk/~vgg/data/dtd",
        licence="for research",
        citation="Cimpoi, Maji, Kokkinos, Mohamed and Vedaldi, Describing textures in the wild, CVPR, 2014",
        class_count=47,
        sizes={"train": 1_880, "val": 1_880, "test": 1_880, "all": 5_640},
    )
    inside = ("dtd",)
    images_in = "images"
    remedy = how_to_get(
        about,
        "dtd-r1.0.1.tar.gz",
        "dtd with labels/train1.txt, val1.txt, test1.txt, … and images/<texture>/<image>.jpg",
    )

    @config
    class Config(ListedConfig):
        """Which of its textures."""

        name: str = "dtd"
        # 1,880 images each, 40 of every class.
        part: Literal["train", "val", "test", "all"] = "test"
        # Which of the authors' ten partitions into train, val and test.
        partition: Annotated[int, Field(ge=1, le=10)] = 1

    def needed(self) -> Sequence[str]:
        """The lists of the part and the images."""
        return [*(f"labels/{part}{self.config.partition}.txt" for part in PARTS[self.config.part]), self.images_in]

    def find(self, passed_over: Counter[str]) -> Iterator[Entry]:
        """The images of the lists; the folder is the class."""
        for name in self.needed()[:-1]:
            for (source,) in lines(self.folder() / name, str):
                yield Entry(source.partition("/")[0], source, "jpg")
