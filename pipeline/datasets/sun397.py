"""SUN397: 108,754 pictures of 397 scenes, at least 100 each."""

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
from pipeline.errors import UserError

CLASSES = "ClassName.txt"
LISTS = {"train": "Training", "test": "Testing"}
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
        # train, test: 50 images a class each; all: every image there is, in no partition or in one.
        part: Literal["train", "test", "all"] = "test"
        # Which of the authors' ten partitions into train and test.
        partition: Annotated[int, Field(ge=1, le=10)] = 1

    def _list(self) -> list[str]:
        """The list of the part, if it has one, below the folder."""
        if self.config.part == "all":
            return []
        name = f"{LISTS[self.config.part]}_{self.config.partition:02d}.txt"
        return [next((at + name for at in PLACES if (self.folder() / (at + name)).exists()), name)]

    def needed(self) -> Sequence[str]:
        """The list of the part and the classes."""
        return [*self._list(), CLASSES]

    def names(self) -> Sequence[str]:
        """In the authors' order."""
        return [_class(name) for (name,) in lines(self.folder() / CLASSES, str)]

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
            yield from sorted(path.relative_to(folder).as_posix() for path in folder.rglob("sun_*.jpg"))


def _class(path: str) -> str:
    """``/b/bakery/shop`` → ``bakery/shop``."""
    return path.lstrip("/").partition("/")[2]
