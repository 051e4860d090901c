"""A folder of ``<class>.tar``, each the images of one class: the form in which ImageNet-21k is published."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import ClassVar

from pipeline.config import config
from pipeline.datasets._listed import Entry, Found, ListedConfig, ListedDataset
from pipeline.datasets.base import About, folder_of
from pipeline.errors import UserError
from pipeline.images.archive import Member, members, printable, read_member
from pipeline.images.grouping import IMAGE_EXTENSIONS


class ClassTars(ListedDataset):
    """Tar = class (``n01440764.tar`` holds ``n01440764_18.JPEG``, …). The tars are not unpacked.

    All headers are read once in every process; a broken tar is refused by its name and byte.
    """

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
        if not any(folder.glob("*.tar")):
            raise UserError(f"{self.config.name}: no *.tar in {folder}. {self.advice}")
        if not self._table.entries:
            raise UserError(f"{self.config.name}: no images in the tars in {folder}. Left out: {self.left_out()}")

    def find(self) -> Found:
        """The headers of all tars."""
        passed_over = Counter[str]()
        entries = []
        for path in sorted(self.config.root.glob("*.tar")):
            for member in members(path):
                extension = member.name.rpartition(".")[2].lower()
                if member.fault:
                    passed_over[member.fault] += 1
                elif extension not in IMAGE_EXTENSIONS:
                    passed_over["no image by its extension"] += 1
                else:
                    source = f"{path.stem}/{printable(member.name)}"
                    entries.append(Entry(path.stem, source, extension, (path, member.start, member.size)))
        return Found(entries=entries, passed_over=passed_over)

    def read(self, entry: Entry) -> bytes:
        """The bytes of the member."""
        path, start, size = entry.place
        with Path(path).open("rb") as file:
            return read_member(file, Member(entry.source, start, size))
