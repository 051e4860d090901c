"""Oxford-IIIT Pet: 7,349 photographs of 37 breeds of cats and dogs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import ClassVar, Literal

from pipeline.config import config
from pipeline.datasets._listed import ListedConfig
from pipeline.datasets._listing import Entry
from pipeline.datasets._published import PublishedFiles, how_to_get, lines
from pipeline.datasets.base import About

LISTS = {"trainval": ("trainval",), "test": ("test",), "all": ("trainval", "test")}


class OxfordPets(PublishedFiles):
    """``root`` holds ``images`` and ``annotations``; a class is called as in the files, ``Egyptian_Mau``."""

    about: ClassVar[About] = About(
        title="Oxford-IIIT Pet",
        source="www.robots.ox.ac.uk/~vgg/data/pets",
        licence="CC BY-SA 4.0; the copyright of the images remains with their owners",
        citation="Parkhi, Vedaldi, Zisserman and Jawahar, Cats and dogs, CVPR, 2012",
        class_count=37,
        sizes={"trainval": 3_680, "test": 3_669, "all": 7_349},
    )
    inside = ("oxford-iiit-pet",)
    images_in = "images"
    remedy = how_to_get(
        about,
        "images.tar.gz and annotations.tar.gz",
        "annotations/trainval.txt, annotations/test.txt and images/<Breed>_<number>.jpg",
    )

    @config
    class Config(ListedConfig):
        """Which of its pets."""

        name: str = "oxford_pets"
        # trainval: 3,680 images; test: 3,669; every class is in both.
        part: Literal["trainval", "test", "all"] = "test"

    def needed(self) -> Sequence[str]:
        """The lists of the part and the images."""
        return [*(f"annotations/{name}.txt" for name in LISTS[self.config.part]), self.images_in]

    def find(self, passed_over: Counter[str]) -> Iterator[Entry]:
        """The images of the lists; the breed is the name up to its number."""
        for name in LISTS[self.config.part]:
            for image, *_ in lines(self.folder() / f"annotations/{name}.txt", str, int, int, int):
                yield Entry(image.rpartition("_")[0], f"{image}.jpg", "jpg")
