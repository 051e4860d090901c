"""Stanford Cars (CARS196): 16,185 photographs of 196 models of cars.

It is published in two forms: all images in ``car_ims`` with ``cars_annos.mat``, or ``cars_train`` and ``cars_test``
with a ``devkit``. Both have the same images and classes under other file names, so the keys differ.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np

from pipeline.config import config
from pipeline.datasets._listed import ListedConfig
from pipeline.datasets._listing import Entry
from pipeline.datasets._mat import read_mat, read_structs
from pipeline.datasets._published import PublishedFiles, how_to_get, in_half, looked_up
from pipeline.datasets.base import About

TOGETHER = "cars_annos.mat"
META, TRAIN = "devkit/cars_meta.mat", "devkit/cars_train_annos.mat"
TEST = ("cars_test_annos_withlabels.mat", "devkit/cars_test_annos_withlabels.mat")  # without them, test has no classes


class Cars196(PublishedFiles):
    """``root`` is a folder of one of the two forms; the test half is classes 99 to 196."""

    about: ClassVar[About] = About(
        title="Stanford Cars (CARS196)",
        source="ai.stanford.edu/~jkrause/cars/car_dataset.html (no longer served; copies have the same files)",
        licence="not stated in the archive: ask its authors",
        citation="Krause, Stark, Deng and Fei-Fei, 3D object representations for fine-grained categorization, "
        "4th IEEE Workshop on 3D Representation and Recognition, ICCV, 2013",
        class_count=196,
        sizes={"train": 8_054, "test": 8_131, "all": 16_185},
    )
    inside = ("stanford_cars", "cars196")
    remedy = how_to_get(
        about, "the archives", f"{TOGETHER} and car_ims/, or {META}, {TRAIN}, {TEST[0]}, cars_train/ and cars_test/"
    )

    @config
    class Config(ListedConfig):
        """Which of its cars."""

        name: str = "cars196"
        # train: classes 1 to 98; test: 99 to 196, as in zero-shot retrieval. Validate on split=unseen of train.
        part: Literal["train", "test", "all"] = "test"

    def _together(self) -> bool:
        folder = self.folder()
        return (folder / TOGETHER).exists() and ((folder / "car_ims").exists() or not (folder / META).exists())

    def _test(self) -> str:
        return next((name for name in TEST if (self.folder() / name).exists()), TEST[0])

    def needed(self) -> Sequence[str]:
        """Of the one form if its list is there, else of the other. Copies may have both lists, and images of one."""
        return (TOGETHER, "car_ims") if self._together() else (META, TRAIN, self._test(), "cars_train", "cars_test")

    def names(self) -> Sequence[str]:
        """The authors' names, in their order."""
        (names,) = read_mat(self.folder() / (TOGETHER if self._together() else META), "class_names")
        return [str(name) for name in np.atleast_1d(names)]

    def find(self, passed_over: Counter[str]) -> Iterator[Entry]:
        """The images of the lists whose class is in the part."""
        folder, classes = self.folder(), dict(enumerate(self.names(), 1))
        if self._together():
            found = _annotations(folder / TOGETHER, "relative_im_path", "")
        else:
            found = [
                *_annotations(folder / TRAIN, "fname", "cars_train/"),
                *_annotations(folder / self._test(), "fname", "cars_test/"),
            ]
        for source, label in found:
            name = looked_up(classes, label, "class", folder)
            if in_half(self.config.part, label, len(classes)):
                yield Entry(name, source, "jpg")


def _annotations(path: Path, file: str, below: str) -> list[tuple[str, int]]:
    """Path below the folder and label, from 1, of each image."""
    return [(f"{below}{name}", int(label)) for name, label in read_structs(path, "annotations", file, "class")]
