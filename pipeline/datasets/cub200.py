"""Caltech-UCSD Birds-200-2011: 11,788 photographs of 200 kinds of birds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import ClassVar, Literal

from pipeline.config import config
from pipeline.datasets._listed import ListedConfig
from pipeline.datasets._listing import Entry
from pipeline.datasets._published import PublishedFiles, how_to_get, in_half, lines, looked_up
from pipeline.datasets.base import About

IMAGES, LABELS, CLASSES = "images.txt", "image_class_labels.txt", "classes.txt"


class Cub200(PublishedFiles):
    """``root`` is ``CUB_200_2011`` or the folder that it lies in; the test half is classes 101 to 200."""

    about: ClassVar[About] = About(
        title="Caltech-UCSD Birds-200-2011",
        source="www.vision.caltech.edu/datasets/cub_200_2011",
        licence="non-commercial research and education only",
        citation="Wah, Branson, Welinder, Perona and Belongie, The Caltech-UCSD Birds-200-2011 dataset, California "
        "Institute of Technology, CNS-TR-2011-001, 2011",
        class_count=200,
        sizes={"train": 5_864, "test": 5_924, "all": 11_788},
    )
    inside = ("CUB_200_2011",)
    images_in = "images"
    remedy = how_to_get(
        about, "CUB_200_2011.tgz", f"CUB_200_2011 with {IMAGES}, {LABELS}, {CLASSES} and images/<class>/<image>.jpg"
    )

    @config
    class Config(ListedConfig):
        """Which of its birds."""

        name: str = "cub200"
        # train: classes 1 to 100; test: 101 to 200, as in zero-shot retrieval. Validate on split=unseen of train.
        part: Literal["train", "test", "all"] = "test"

    def needed(self) -> Sequence[str]:
        """The lists and the images."""
        return IMAGES, LABELS, CLASSES, self.images_in

    def find(self, passed_over: Counter[str]) -> Iterator[Entry]:
        """The images of the list whose class is in the part."""
        folder = self.folder()
        classes = dict(lines(folder / CLASSES, int, str))
        labels = dict(lines(folder / LABELS, int, int))
        for image, source in lines(folder / IMAGES, int, str):
            label = looked_up(labels, image, "image", folder / LABELS)
            name = looked_up(classes, label, "class", folder / CLASSES)
            if in_half(self.config.part, label, len(classes)):
                yield Entry(name, source, "jpg")
