"""Caltech 101: pictures of 101 sorts of things, about 40 to 800 each; folder = class.

Its authors publish no split. VTAB's (3,060 images to train, 30 of each class and of the background; 6,084 to test) is
that of TensorFlow Datasets, which draws it when it prepares the data: numpy's generator, seed 1234, over folders and
files in the order in which the file system lists them. So it is in no file of the archive, and another file system
gives another one; only who has prepared the data knows it. With this it is written down, and is read here::

    import tensorflow_datasets as tfds
    for part in ("train", "test"):
        data, info = tfds.load("caltech101", split=part, with_info=True)
        names = info.features["label"].names
        with open(f"caltech101_tfds_{part}.txt", "w") as file:
            for image in tfds.as_numpy(data):
                print(names[image["label"]], image["image/file_name"].decode(), sep="/", file=file)

``part=train`` and ``part=test`` are drawn here in the same manner, 30 images of each class, but by a hash of their
names: the same ones everywhere, and not VTAB's. The background, which VTAB counts as a class, is in neither unless
``background=true``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from pipeline.config import config
from pipeline.datasets._folders import FlatFolders
from pipeline.datasets._listed import ListedConfig
from pipeline.datasets._listing import Entry
from pipeline.datasets._published import how_to_get, lines
from pipeline.datasets.base import About, mixed_order
from pipeline.errors import UserError

BACKGROUND = "BACKGROUND_Google"
LISTS = {"vtab_train": "caltech101_tfds_train.txt", "vtab_test": "caltech101_tfds_test.txt"}
PLACES = ("", "../")  # in the folder of the classes or beside it


class Caltech101(FlatFolders):
    """``root`` is ``101_ObjectCategories`` or a folder that it lies in. There is no split by its authors."""

    about: ClassVar[About] = About(
        title="Caltech 101",
        source="data.caltech.edu/records/mzrjq-6wc02",
        licence="CC BY 4.0",
        citation="Li, Andreeto, Ranzato and Perona, Caltech 101, CaltechDATA, 2022; Fei-Fei, Fergus and Perona, "
        "Learning generative visual models from few training examples, CVPR workshop, 2004",
        class_count=101,
        sizes={"train": 3_030, "test": 5_647, "all": 8_677},
    )
    inside = ("101_ObjectCategories", "caltech-101/101_ObjectCategories", "caltech101/101_ObjectCategories")
    remedy = how_to_get(
        about,
        "caltech-101.zip, and 101_ObjectCategories.tar.gz in it,",
        f"101_ObjectCategories/<class>/image_0001.jpg, …; {BACKGROUND} not counted",
    )

    @config
    class Config(ListedConfig):
        """Which of its things."""

        name: str = "caltech101"
        # train, test: drawn here, by a hash of the name; vtab_…: VTAB's, of a list that TensorFlow Datasets' user has
        # to write (pipeline/datasets/caltech101.py says how), and only with background=true all of it.
        part: Literal["train", "test", "all", "vtab_train", "vtab_test"] = "all"
        # So many images of each class are in train, the rest in test.
        train_per_class: Annotated[int, Field(ge=1)] = 30
        # Take BACKGROUND_Google too: pictures of none of the 101, which are no class.
        background: bool = False

    def not_wanted(self, source: Path) -> str:
        """The background is no class."""
        unwanted = source.parts[0] == BACKGROUND and not self.config.background
        return f"in {BACKGROUND}, which is no class" if unwanted else ""

    def find(self, passed_over: Counter[str]) -> Iterator[Entry]:
        """The images of the part."""
        part = self.config.part
        found = super().find(passed_over)
        if part == "all":
            yield from found
            return
        entries = list(found)
        chosen = self._listed(part, entries) if part in LISTS else self._drawn(part, entries)
        for entry in entries:
            if entry.source in chosen:
                yield entry
            else:
                passed_over[f"not in {part}"] += 1

    def _drawn(self, part: str, entries: list[Entry]) -> set[str]:
        """Of each class those that a shuffle by their names has first, or the others."""
        classes: dict[str, list[str]] = {}
        for entry in entries:
            classes.setdefault(entry.class_name, []).append(entry.source)
        chosen = set[str]()
        for sources in classes.values():
            mixed = [sources[place] for place in mixed_order(sources)]
            count = self.config.train_per_class
            chosen.update(mixed[:count] if part == "train" else mixed[count:])
        return chosen

    def _listed(self, part: str, entries: list[Entry]) -> set[str]:
        """Those of the list, where classes may be in lower case, as TensorFlow Datasets has them."""
        folder, name = self.folder(), LISTS[part]
        path = next((folder / (at + name) for at in PLACES if (folder / (at + name)).is_file()), None)
        if path is None:
            raise UserError(
                f"{self.config.name}: {folder} has no {name}, nor has the folder above it: the images of "
                f"dataset.part={part}, one <class>/<image> a line. TensorFlow Datasets draws them anew on each file "
                "system, so who prepared the data with it has to write the list: pipeline/datasets/caltech101.py says "
                "how. dataset.part=test is a split of the same kind that needs no list."
            )
        known = {entry.source.lower(): entry.source for entry in entries}
        chosen = set[str]()
        for (source,) in lines(path, str):
            if source.lower() in known:
                chosen.add(known[source.lower()])
            elif self.config.background or not source.lower().startswith(f"{BACKGROUND.lower()}/"):
                raise UserError(f"{path} lists {source}, which is not in {folder}. {self.advice}")
        return chosen
