"""Images that a CSV or Parquet file lists, one a row: its path and its class, where the images lie as they like."""

from __future__ import annotations

import hashlib
import re
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from pipeline.config import config
from pipeline.datasets._index import index_rows, noun
from pipeline.datasets._listed import ListedConfig, ListedDataset
from pipeline.datasets._listing import Entry
from pipeline.datasets.base import About, folder_of
from pipeline.errors import UserError
from pipeline.images.grouping import IMAGE_EXTENSIONS

KEY = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_/-]*")


class IndexFile(ListedDataset):
    """One row an image. A path that stands in two rows is two images (with two labels, say).

    Whether the images are there is found out when they are packed, so that 13 million rows need no 13 million looks.
    """

    about: ClassVar[About] = About(
        title="An index of images",
        source="the user's own",
        licence="not stated: ask whoever owns the images",
    )
    remedy = "Set dataset.root to the folder that holds the index, and dataset.index to its name."

    @config
    class Config(ListedConfig):
        """Which index, and what its columns are called."""

        name: str = "index_file"
        # .csv, .tsv or .parquet, below root or an absolute path.
        index: str = "index.csv"
        # Column of the image's path.
        path_column: str = "path"
        # Column of the class.
        label_column: str = "label"
        # Column of a name for each image, unique, of A-Z a-z 0-9 _ - / only; none: made of the path.
        key_column: str | None = None
        # What the paths start from: a folder below root, or an absolute path.
        images: str = "."
        # names: the label is the name of the class; indices: its place in class_list, from 0.
        labels: Literal["names", "indices"] = "names"
        # Of a text index; none: a comma, and in .tsv a tab.
        delimiter: str | None = None

        def __post_init__(self) -> None:
            super().__post_init__()
            if self.delimiter is not None and len(self.delimiter) != 1:
                raise ValueError(f"delimiter must be one sign, not {self.delimiter!r}")
            if self.labels == "indices" and self.class_list is None:
                raise ValueError("labels=indices needs class_list: the classes that the indices count")

    @property
    def index(self) -> Path:
        """The index."""
        return Path(self.config.root / self.config.index)

    def check(self) -> None:
        """The index must be there and whole, and its first image too (then the paths are understood)."""
        folder_of(self.config.root, self.config.name, self.advice)
        if not self.index.is_file():
            raise UserError(f"{self.config.name}: no index at {self.index}. {self.advice}")
        if not len(self):
            raise UserError(f"{self.config.name}: no images in {self.index}. Left out: {dict(self.left_out())}")
        self.read(next(self._selection.entries(0, 1))[1])

    def fingerprint(self) -> Any:
        """Size and time of the index."""
        look = self.index.stat()
        return [look.st_size, look.st_mtime_ns]

    def find(self, passed_over: Counter[str]) -> Iterator[Entry]:
        """The rows of the index, in order."""
        columns = [self.config.path_column, self.config.label_column]
        columns += [self.config.key_column] if self.config.key_column else []
        marks, numbers = bytearray(), array("q")  # of the keys: 16 bytes a row
        for number, (path, label, *key) in index_rows(self.index, columns, self.config.delimiter):
            extension = path.rpartition(".")[2].lower()
            if not path.isprintable():
                raise UserError(f"{self._where(number, columns[0])}: {path!r} has control characters.")
            if key:
                marks += self._checked(key[0], number)
                numbers.append(number)
            if extension not in IMAGE_EXTENSIONS:
                passed_over["no image by its extension"] += 1
                continue
            absolute = int(path.startswith("/"))
            yield Entry(self._class(label, number), path.lstrip("/"), extension, (number, absolute), *key)
        self._refuse_repeated(np.frombuffer(marks, np.uint64), numbers)

    def _where(self, number: int, column: str | None) -> str:
        return f"{self.index}, {noun(self.index)} {number}, column {column}"

    def _class(self, label: str, number: int) -> str:
        if self.config.labels == "names":
            return label
        names = self._wanted_classes or ()
        place = self._where(number, self.config.label_column)
        if not re.fullmatch(r"[0-9]{1,9}", label):
            raise UserError(f"{place}: {label!r} is no index. If it is the class's name, set dataset.labels=names.")
        if int(label) >= len(names):
            raise UserError(f"{place}: {label}, but dataset.class_list has the classes 0 to {len(names) - 1}.")
        return names[int(label)]

    def _checked(self, key: str, number: int) -> bytes:
        if not KEY.fullmatch(key):
            raise UserError(
                f"{self._where(number, self.config.key_column)}: {key!r} is no key: only A-Z a-z 0-9 _ - and / inside. "
                "Or leave out dataset.key_column."
            )
        return hashlib.blake2b(key.encode(), digest_size=8).digest()

    def _refuse_repeated(self, mark_N: NDArray[np.uint64], number_N: Sequence[int]) -> None:
        order = np.argsort(mark_N, kind="stable")
        same = np.flatnonzero(np.diff(mark_N[order]) == 0)
        if same.size:
            first, again = (number_N[order[same[0] + step]] for step in (0, 1))
            raise UserError(
                f"{self._where(again, self.config.key_column)}: the key stands in {noun(self.index)} {first} already. "
                "Each image needs its own."
            )

    def read(self, entry: Entry) -> bytes:
        """The bytes of the file."""
        number, absolute = entry.place
        place = self.config.root / self.config.images / f"{'/' if absolute else ''}{entry.source}"
        try:
            return Path(place).read_bytes()
        except OSError as error:
            raise UserError(
                f"{self._where(number, self.config.path_column)}: {place} cannot be read ({error.strerror}). "
                "Paths start from dataset.images."
            ) from None
