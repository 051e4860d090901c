"""SUN397: 108,754 pictures of 397 scenes, at least 100 each.

``part=train`` and ``part=test`` are those of the authors' ten partitions, 50 images of a class each. VTAB's split is
another one, of all images but one that cannot be decoded everywhere: 76,128 to train, 10,875 to validate, 21,750 to
test. Its lists come with the Python package ``tensorflow-datasets`` (``tensorflow_datasets/image_classification/
sun397_tfds_te.txt``, …; ``pip download --no-deps tensorflow-datasets`` and unzip them), and are read where they lie in
the folder or beside it. The images are the authors' own; VTAB's are made smaller (120,000 pixels at most) and coded
anew as JPEG by TensorFlow Datasets.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from pipeline.config import config
from pipeline.datasets._listed import ListedConfig
from pipeline.datasets._listing import Entry
from pipeline.datasets._published import PublishedFiles, how_to_get, lines
from pipeline.datasets.base import About
from pipeline.errors import UserError

CLASSES = "ClassName.txt"
LISTS = {"train": "Training_{:02d}.txt", "test": "Testing_{:02d}.txt"}
VTAB_LISTS = {
    f"vtab_{part}": f"sun397_tfds_{short}.txt" for part, short in (("train", "tr"), ("val", "va"), ("test", "te"))
}
PLACES = ("", "Partitions/", "../", "../Partitions/")  # the lists are an archive of their own


class Sun397(PublishedFiles):
    """``root`` is ``SUN397`` or the folder that it lies in. A class is called as by its authors: ``/b/bakery/shop``
    is ``bakery/shop``.
    """

    about: ClassVar[About] = About(
        title="SUN397",
        source="vision.princeton.edu/projects/2010/SUN",
        licence="not stated in the archive: ask its authors",
        citation="Xiao, Hays, Ehinger, Oliva and Torralba, SUN database: large-scale scene recognition from abbey to "
        "zoo, CVPR, 2010",
        class_count=397,
        sizes={"train": 19_850, "test": 19_850, "all": 108_754},
    )
    inside = ("SUN397",)
    remedy = how_to_get(
        about,
        "SUN397.tar.gz and Partitions.zip",
        f"SUN397 with {CLASSES} and <letter>/<class>/sun_<code>.jpg, and in it or beside it Testing_01.txt, "
        "Training_01.txt, …",
    )

    @config
    class Config(ListedConfig):
        """Which of its scenes."""

        name: str = "sun397"
        # train, test: 50 images a class each; vtab_…: VTAB's, of the lists in the Python package tensorflow-datasets;
        # all: every image there is, in no partition or in one.
        part: Literal["train", "test", "all", "vtab_train", "vtab_val", "vtab_test"] = "test"
        # Which of the authors' ten partitions into train and test.
        partition: Annotated[int, Field(ge=1, le=10)] = 1

    def _list(self) -> list[str]:
        """The list of the part, if it has one, below the folder."""
        if self.config.part == "all":
            return []
        name = {**LISTS, **VTAB_LISTS}[self.config.part].format(self.config.partition)
        return [next((at + name for at in PLACES if (self.folder() / (at + name)).exists()), name)]

    def needed(self) -> Sequence[str]:
        """The list of the part and the classes."""
        return [*self._list(), CLASSES]

    @property
    def advice(self) -> str:
        """Where to get VTAB's lists, if they are asked for."""
        lists = (
            f" VTAB's lists, {', '.join(VTAB_LISTS.values())}, are in the Python package tensorflow-datasets, in "
            "tensorflow_datasets/image_classification: `pip download --no-deps tensorflow-datasets`, and unzip it."
        )
        return super().advice + (lists if self.config.part in VTAB_LISTS else "")

    def names(self) -> Sequence[str]:
        """In the authors' order."""
        return [_class(name) for (name,) in lines(self.folder() / CLASSES, str)]

    def looked_into(self) -> Sequence[Path]:
        """The folders of the classes, if all that is there is taken."""
        if self.config.part != "all":
            return ()
        paths = [self.folder() / name.lstrip("/") for (name,) in lines(self.folder() / CLASSES, str)]
        return [path for path in paths if path.is_dir()]

    def find(self, passed_over: Counter[str]) -> Iterator[Entry]:
        """The images of the list, or those in the folders of the classes."""
        names = frozenset(self.names())
        for source in self._sources():
            name = _class(source.rpartition("/")[0])
            if name not in names:
                raise UserError(f"{self.folder() / CLASSES} has no class {name}, in which {source} lies.")
            yield Entry(name, source, "jpg")

    def _sources(self) -> Iterator[str]:
        folder = self.folder()
        for name in self._list():
            yield from (source.lstrip("/") for (source,) in lines(folder / name, str))
        if self.config.part == "all":
            for below in self.looked_into():
                yield from (path.relative_to(folder).as_posix() for path in sorted(below.glob("sun_*.jpg")))


def _class(path: str) -> str:
    """``/b/bakery/shop`` → ``bakery/shop``."""
    return path.lstrip("/").partition("/")[2]
