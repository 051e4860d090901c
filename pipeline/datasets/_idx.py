"""IDX files, the format of MNIST: two zero bytes, type, number of axes, their lengths (big endian), then the values."""

from __future__ import annotations

import gzip
import struct
import zlib
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from pipeline.datasets._arrays import png
from pipeline.datasets._listed import ListedDataset
from pipeline.datasets._listing import Entry
from pipeline.datasets.base import folder_of
from pipeline.errors import UserError

UNSIGNED_BYTE = 0x08
PREFIXES = {"train": ("train",), "test": ("t10k",), "all": ("train", "t10k")}


@lru_cache(maxsize=4)
def read_idx(path: Path) -> NDArray[np.uint8]:
    """The array in an IDX file, plain or gzipped, as uint8.

    Raises:
        UserError: the file is not IDX, not of unsigned bytes, or cut off.
    """
    data = path.read_bytes()
    try:
        data = gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data
        zero, kind, axes = struct.unpack(">HBB", data[:4])
        if zero or kind != UNSIGNED_BYTE:
            raise UserError(f"{path} is not an IDX file of unsigned bytes: it begins with {data[:4].hex(' ')}")
        shape = struct.unpack(f">{axes}I", data[4 : 4 + 4 * axes])
    except (OSError, EOFError, zlib.error, struct.error) as error:
        raise UserError(f"{path} is not a whole IDX file: {error}. Get it again.") from None
    values = np.frombuffer(data, np.uint8, offset=4 + 4 * axes)
    if values.size != np.prod(shape, dtype=np.int64):
        raise UserError(f"{path} holds {values.size} values where its header says {shape}. Get it again.")
    return values.reshape(shape)


class IdxDataset(ListedDataset):
    """Images and labels in two IDX files; an image is given as PNG. The order of the classes is that of the labels."""

    remedy = "Set dataset.root to the folder of the IDX files."
    shares_files: ClassVar[bool] = False

    @abstractmethod
    def parts(self) -> Sequence[tuple[str, Path, Path]]:
        """Name, images file and labels file of each part that is taken."""

    @abstractmethod
    def names(self) -> Sequence[str]:
        """Class names by label; empty: the labels themselves are the names."""

    def check(self) -> None:
        """The files must be there, be IDX, and fit each other."""
        folder_of(self.config.root, self.config.name, self.advice)
        for _, images, labels in self.parts():
            for path in (images, labels):
                if not path.is_file():
                    raise UserError(f"{self.config.name}: no file {path}. {self.advice}")
            shape, count = read_idx(images).shape, read_idx(labels).shape
            if len(shape) not in (3, 4) or count != shape[:1]:
                raise UserError(f"{images} has shape {shape} and {labels} {count}: not one label an image.")
            highest = int(read_idx(labels).max(initial=0))
            if self.names() and highest >= len(self.names()):
                raise UserError(f"{labels} has the label {highest}, but there are {len(self.names())} class names.")

    def find(self, passed_over: Counter[str]) -> Iterator[Entry]:
        """All images of the parts."""
        for number, (part, _, labels) in enumerate(self.parts()):
            for index, label in enumerate(read_idx(labels).tolist()):
                yield Entry(self._name(label), f"{part}/{index:05d}", "png", (number, index))

    def _name(self, label: int) -> str:
        names = self.names()
        return names[label] if names else str(label)

    def ordered_classes(self, names: set[str]) -> list[str]:
        """In the order of the labels in the file."""
        given = list(self.names())
        return sorted(names, key=given.index if given else int)

    def read(self, entry: Entry) -> bytes:
        """One image as PNG."""
        number, index = entry.place
        _, path, _ = self.parts()[number]
        return png(read_idx(path)[index])


class MnistFiles(IdxDataset):
    """The four files of MNIST, as they are published, gzipped or unpacked; ``config.part`` says which."""

    def parts(self) -> Sequence[tuple[str, Path, Path]]:
        """One or both."""
        folder = self.folder()
        return [
            (
                prefix,
                _published(folder, f"{prefix}-images", "idx3-ubyte"),
                _published(folder, f"{prefix}-labels", "idx1-ubyte"),
            )
            for prefix in PREFIXES[self.config.part]
        ]


def _published(folder: Path, name: str, kind: str) -> Path:
    """``train-images-idx3-ubyte``; some unpackers make ``train-images.idx3-ubyte`` of it, some a folder around it."""
    names = (f"{name}-{kind}", f"{name}.{kind}", f"{name}-{kind}/{name}-{kind}", f"{name}-{kind}.gz")
    return next((folder / name for name in names if (folder / name).is_file()), folder / names[-1])
