"""Images that a CSV or Parquet file lists, one a row: its path and its class, where the images lie as they like."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import ClassVar

from pipeline.config import config
from pipeline.datasets._index import index_rows
from pipeline.datasets._listed import Entry, Found, ListedConfig, ListedDataset
from pipeline.datasets.base import About, folder_of
from pipeline.errors import UserError
from pipeline.images.grouping import IMAGE_EXTENSIONS

KEY = re.compile(r"[A-Za-z0-9_/-]+")


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
        # Of a text index; none: a comma, and in .tsv a tab.
        delimiter: str | None = None

        def __post_init__(self) -> None:
            super().__post_init__()
            if self.delimiter is not None and len(self.delimiter) != 1:
                raise ValueError(f"delimiter must be one sign, not {self.delimiter!r}")

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
        self.read(self._table.entries[0])

    def find(self) -> Found:
        """The rows of the index, in order."""
        columns = [self.config.path_column, self.config.label_column]
        columns += [self.config.key_column] if self.config.key_column else []
        passed_over = Counter[str]()
        entries, keys = [], dict[str, str]()
        for where, (path, label, *key) in index_rows(self.index, columns, self.config.delimiter):
            extension = path.rpartition(".")[2].lower()
            if not path.isprintable():
                raise UserError(f"{self.index}, {where}, column {columns[0]}: {path!r} has control characters.")
            if key:
                self._check_key(key[0], where, keys)
            if extension not in IMAGE_EXTENSIONS:
                passed_over["no image by its extension"] += 1
                continue
            entries.append(Entry(label, path.lstrip("/"), extension, (path, where), *key))
        return Found(entries=entries, passed_over=passed_over)

    def _check_key(self, key: str, where: str, keys: dict[str, str]) -> None:
        place = f"{self.index}, {where}, column {self.config.key_column}"
        if not KEY.fullmatch(key) or key.startswith("/"):
            raise UserError(f"{place}: {key!r} is no key: only A-Z a-z 0-9 _ - and / inside. Or leave out key_column.")
        if key in keys:
            raise UserError(f"{place}: the key {key!r} stands in {keys[key]} already. Each image needs its own.")
        keys[key] = where

    def read(self, entry: Entry) -> bytes:
        """The bytes of the file."""
        path, where = entry.place
        place = self.config.root / self.config.images / path
        try:
            return Path(place).read_bytes()
        except OSError as error:
            raise UserError(
                f"{self.index}, {where}, column {self.config.path_column}: {place} cannot be read "
                f"({error.strerror}). Paths start from dataset.images."
            ) from None
