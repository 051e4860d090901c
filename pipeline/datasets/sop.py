"""Stanford Online Products: 120,053 photographs of 22,634 products of twelve sorts, a few of each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import ClassVar, Literal

from pipeline.config import config
from pipeline.datasets._listed import ListedConfig
from pipeline.datasets._listing import Entry
from pipeline.datasets._published import PublishedFiles, how_to_get, lines
from pipeline.datasets.base import About

LISTS = {"train": ("Ebay_train.txt",), "test": ("Ebay_test.txt",), "all": ("Ebay_train.txt", "Ebay_test.txt")}


class Sop(PublishedFiles):
    """``root`` is ``Stanford_Online_Products`` or the folder that it lies in; the authors' split, by class."""

    about: ClassVar[About] = About(
        title="Stanford Online Products",
        source="cvgl.stanford.edu/projects/lifted_struct",
        licence="not stated in the archive: ask its authors",
        citation="Oh Song, Xiang, Jegelka and Savarese, Deep metric learning via lifted structured feature embedding, "
        "CVPR, 2016",
        class_count=22_634,
        sizes={"train": 59_551, "test": 60_502, "all": 120_053},
    )
    inside = ("Stanford_Online_Products",)
    remedy = how_to_get(
        about,
        "Stanford_Online_Products.zip",
        "Stanford_Online_Products with Ebay_train.txt, Ebay_test.txt and <sort>_final/<image>.JPG",
    )

    @config
    class Config(ListedConfig):
        """Which of its products."""

        name: str = "sop"
        # train: 11,318 classes; test: the other 11,316.
        part: Literal["train", "test", "all"] = "test"

    def needed(self) -> Sequence[str]:
        """The lists of the part."""
        return LISTS[self.config.part]

    def find(self, passed_over: Counter[str]) -> Iterator[Entry]:
        """The images of the lists; a class is called by its sort and the authors' number, as ``bicycle/00001``."""
        for name in self.needed():
            for _, label, _, source in lines(self.folder() / name, int, int, int, str, header=1):
                sort = source.partition("/")[0].removesuffix("_final")
                yield Entry(f"{sort}/{label:05d}", source, source.rpartition(".")[2].lower())
