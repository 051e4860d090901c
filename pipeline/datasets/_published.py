"""Datasets as their authors publish them: lists of the images in files of their own, and the folders beside them."""

from __future__ import annotations

import errno
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

from pipeline.datasets._listed import ListedDataset
from pipeline.datasets._listing import Entry
from pipeline.datasets.base import About
from pipeline.errors import UserError

LOOKED_AT = 256  # images whose presence is checked beforehand: a random sample, since their order is mixed


def how_to_get(about: About, archive: str, holds: str) -> str:
    """What is expected in a folder, and where its authors publish it; a ``remedy`` of :class:`ListedDataset`.

    Args:
        about: says where, and how much there should be.
        archive: what is to be fetched and unpacked.
        holds: the files and folders in it that are read.
    """
    parts = ", ".join(f"{part} {count:,}" for part, count in about.sizes.items())
    size = f"{about.class_count:,} classes" + (f"; images: {parts}" if parts else "")
    return (
        f"Expected there: {holds} ({size}). Get {archive} from {about.source} and unpack it in {{root}}, "
        "or set dataset.root to where it lies."
    )


class PublishedDataset(ListedDataset):
    """Subclasses say which files are needed, list the images (:meth:`find`) and read one (:meth:`read`)."""

    shares_files: ClassVar[bool] = False

    @abstractmethod
    def needed(self) -> Sequence[str]:
        """The files and folders below :meth:`folder` without which nothing can be read; lists of the images first."""

    def names(self) -> Sequence[str]:
        """All classes in the order of their labels; empty: in sorted order."""
        return ()

    def ordered_classes(self, names: set[str]) -> list[str]:
        """In the authors' order."""
        return [name for name in self.names() if name in names] or sorted(names)

    def check(self) -> None:
        """All that is needed must be there."""
        folder = self.folder()
        missing = [name for name in self.needed() if not (folder / name).exists()]
        if missing:
            raise UserError(f"{self.config.name}: {folder} has no {', no '.join(missing)}. {self.advice}")
        if not len(self):
            about = "; ".join(f"{count} × {reason}" for reason, count in self.left_out().items())
            found = f"{about}. " if about else ""
            raise UserError(f"{self.config.name}: no images are taken of {folder}. {found}{self.advice}")

    def fingerprint(self) -> Any:
        """Size and time of the files that list the images, and of folders: their time is when a file came or went."""
        paths = [*(self.folder() / name for name in self.needed()), *self.looked_into()]
        return [[look.st_size, look.st_mtime_ns] for look in (path.stat() for path in paths)]

    def looked_into(self) -> Sequence[Path]:
        """Folders whose images are those that are there, and not those of a list."""
        return ()


class PublishedFiles(PublishedDataset):
    """Images in files of their own; an entry's ``source`` is the path below the folder :attr:`images`."""

    images_in: ClassVar[str] = "."  # below folder()

    def check(self) -> None:
        """Besides, a sample of the images that are listed must be there."""
        super().check()
        sample = [entry for _, entry in self._selection.entries(0, LOOKED_AT)]
        absent = [path for path in map(self._path, sample) if not path.is_file()]
        if absent:
            raise UserError(
                f"{self.config.name}: of {len(sample)} listed images that were looked for, {len(absent)} are missing, "
                f"such as {absent[0]}. {self.advice}"
            )

    def _path(self, entry: Entry) -> Path:
        return self.folder() / self.images_in / entry.source

    def read(self, entry: Entry) -> bytes:
        """The bytes of the file."""
        try:
            return self._path(entry).read_bytes()
        except OSError as error:
            what = "is listed, but missing" if error.errno == errno.ENOENT else f"cannot be read ({error.strerror})"
            raise UserError(f"{self.config.name}: {self._path(entry)} {what}. {self.advice}") from None


def lines(path: Path, *kinds: type[Any], header: int = 0) -> Iterator[list[Any]]:
    """The values of each line of a list, parted by blanks; empty lines and those that begin with # are passed over.

    Args:
        path: the list, UTF-8.
        kinds: ``int`` (from 0) or ``str`` for each value of a line.
        header: so many lines at the top are names of columns.

    Raises:
        UserError: no UTF-8, another number of values, no number where there should be one; names the line.
    """
    try:
        text = path.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is no text ({error}). Get it again.") from None
    for number, line in enumerate(text, 1):
        if number <= header or not line.strip() or line.startswith("#"):
            continue
        values = line.split()
        fit = [kind is str or (value.isascii() and value.isdigit()) for kind, value in zip(kinds, values, strict=False)]
        if len(values) != len(kinds) or not all(fit):
            wanted = " ".join({int: "<number>", str: "<text>"}[kind] for kind in kinds)
            raise UserError(f"{path}, line {number}: {line.strip()!r} is not of the form {wanted}. Get it again.")
        yield [kind(value) for kind, value in zip(kinds, values, strict=True)]


def looked_up(table: dict[int, Any], number: int, what: str, path: Path) -> Any:
    """``table[number]``, where ``path`` is the list that the table was read of.

    Raises:
        UserError: it is not in the table.
    """
    if number not in table:
        raise UserError(f"{path} has no {what} {number}, which another list names. The lists are not of one archive.")
    return table[number]


def in_half(part: str, number: int, count: int) -> bool:
    """Whether class ``number`` (from 1) of ``count`` is in a part: the first half of the classes is train.

    The split of zero-shot retrieval: Oh Song et al., Deep metric learning via lifted structured feature embedding,
    CVPR 2016. It is by class: no class of test is in train.
    """
    return part == "all" or (number <= count // 2) == (part == "train")
