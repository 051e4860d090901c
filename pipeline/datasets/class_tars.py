"""A folder of ``<class>.tar``, each the images of one class: the form in which ImageNet-21k is published."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

from pipeline.config import config
from pipeline.datasets._folders import not_the_users
from pipeline.datasets._listed import ListedConfig, ListedDataset
from pipeline.datasets._listing import Entry
from pipeline.datasets.base import About, folder_of
from pipeline.errors import UserError
from pipeline.images.archive import Member, members, printable, read_member
from pipeline.images.grouping import IMAGE_EXTENSIONS
from pipeline.stale import SteadyFile


class ClassTars(ListedDataset):
    """Tar = class (``n01440764.tar`` holds ``n01440764_18.JPEG``, …). The tars are not unpacked.

    All headers are read once, and kept in the run folder of packing; a broken tar is refused by its name and byte.
    """

    shares_files: ClassVar[bool] = False

    about: ClassVar[About] = About(
        title="Tars of one class each",
        source="the user's own; the official form of ImageNet-21k (image-net.org)",
        licence="not stated: ask whoever owns the images; ImageNet: non-commercial research only",
    )

    remedy = "Set dataset.root to the folder that holds one <class>.tar a class."

    @config
    class Config(ListedConfig):
        """What is taken of the tars."""

        name: str = "class_tars"

    def check(self) -> None:
        """There must be tars with images."""
        folder = folder_of(self.config.root, self.config.name, self.advice)
        if not self._tars():
            raise UserError(f"{self.config.name}: no *.tar in {folder}. {self.advice}")
        if not len(self):
            raise UserError(f"{self.config.name}: no images in the tars in {folder}. Left out: {self.left_out()}")

    def fingerprint(self) -> Any:
        """Name, size and time of every tar."""
        looks = [(path.name, path.stat()) for path in self._tars()]
        return [[name, look.st_size, look.st_mtime_ns] for name, look in looks]

    def _tars(self) -> list[Path]:
        return [path for path in sorted(self.config.root.glob("*.tar")) if not path.name.startswith(".")]

    def find(self, passed_over: Counter[str]) -> Iterator[Entry]:
        """The headers of all tars."""
        for path in self._tars():
            for member in members(path):
                extension = member.name.rpartition(".")[2].lower()
                if member.fault:
                    passed_over[member.fault] += 1
                elif extension not in IMAGE_EXTENSIONS:
                    passed_over["no image by its extension"] += 1
                elif reason := not_the_users(member.name):
                    passed_over[reason] += 1
                else:
                    source = f"{path.stem}/{printable(member.name)}"
                    yield Entry(path.stem, source, extension, (member.start, member.size))

    def read(self, entry: Entry) -> bytes:
        """The bytes of the member."""
        start, size = entry.place
        with SteadyFile(self.config.root / f"{entry.class_name}.tar") as file:
            return read_member(file, Member(entry.source, start, size))
