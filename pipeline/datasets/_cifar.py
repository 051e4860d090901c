"""CIFAR-10 and CIFAR-100, in the two forms in which their authors publish them; both give the same images and keys.

The binary form is preferred. The pickles of the Python form are read by an unpickler that makes plain values and arrays
and nothing else, so that a file from who knows where can run no code.
"""

from __future__ import annotations

import io
import pickle
from abc import abstractmethod
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from pipeline.config import config
from pipeline.datasets._arrays import ArrayDataset, Pixels, fit
from pipeline.datasets._listed import ListedConfig
from pipeline.errors import UserError

SIDE = 32
VALUES = 3 * SIDE * SIDE  # of an image: all of red, all of green, all of blue


@config
class CifarConfig(ListedConfig):
    """Which of its images."""

    # train: 50,000 images; test: 10,000.
    part: Literal["train", "test", "all"] = "test"


class Cifar(ArrayDataset):
    """Files are called ``<batch>.bin`` in the one form and ``<batch>`` in the other."""

    parts: ClassVar[dict[str, tuple[str, ...]]]  # part → batches
    before: ClassVar[int]  # bytes before an image in the binary form, labels all of them
    meta: ClassVar[str]  # file of the names in the Python form

    @abstractmethod
    def what(self) -> tuple[int, str, str, str]:
        """Of the labels: byte in the binary form, file of names there, and keys of labels and names in the pickles."""

    def _is_binary(self) -> bool:
        return (self.folder() / self.what()[1]).exists() or not (self.folder() / self.meta).exists()

    def needed(self) -> Sequence[str]:
        """The batches of the part and the names."""
        names = self.what()[1] if self._is_binary() else self.meta
        return [*(path.name for _, path in self.batches()), names]

    def ending(self) -> str:
        """Of the files of the form that is there."""
        return ".bin" if self._is_binary() else ""

    def batches(self) -> Sequence[tuple[str, Path]]:
        """In the form that is there."""
        return [(name, self.folder() / f"{name}{self.ending()}") for name in self.parts[self.config.part]]

    def names(self) -> Sequence[str]:
        """The authors' names, in their order."""
        if self._is_binary():
            return (self.folder() / self.what()[1]).read_text(encoding="utf-8-sig").split()
        path, key = self.folder() / self.meta, self.what()[3]
        return [bytes(name).decode() for name in _value(read_pickle(path), key, path)]

    def labels(self, path: Path) -> Sequence[int]:
        """Of the batch."""
        byte, _, key, _ = self.what()
        if self._is_binary():
            labels: list[int] = _records(path, self.before)[:, byte].tolist()
            return labels
        found = _value(read_pickle(path), key, path)
        fit(path, _value(read_pickle(path), "data", path), found, (VALUES,))
        return [int(label) for label in found]

    def pixels(self, path: Path, index: int) -> Pixels:
        """(32, 32, 3)."""
        if self._is_binary():
            values = _records(path, self.before)[index, self.before :]
        else:
            values = _value(read_pickle(path), "data", path)[index]
        return np.asarray(values).reshape(3, SIDE, SIDE).transpose(1, 2, 0)


@lru_cache(maxsize=6)
def _records(path: Path, before: int) -> Any:
    """(N, ``before`` + 3,072) bytes, mapped."""
    size, record = path.stat().st_size, before + VALUES
    if not size or size % record:
        raise UserError(f"{path} has {size:,} bytes, no multiple of {record:,}: it is cut off. Get it again.")
    return np.memmap(path, np.uint8, "r").reshape(-1, record)


class _PlainUnpickler(pickle.Unpickler):
    """Makes numbers, texts, bytes, lists, dictionaries and numpy's arrays of them; any other class is an error."""

    _RECONSTRUCT = np.empty(0).__reduce__()[0]  # what numpy's pickles call, under two names
    _KNOWN: ClassVar[dict[tuple[str, str], Any]] = {
        ("numpy.core.multiarray", "_reconstruct"): _RECONSTRUCT,
        ("numpy._core.multiarray", "_reconstruct"): _RECONSTRUCT,
        ("numpy", "ndarray"): np.ndarray,
        ("numpy", "dtype"): np.dtype,
    }

    def find_class(self, module: str, name: str) -> Any:
        """One of those known."""
        if (module, name) not in self._KNOWN:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which no file of CIFAR does")
        return self._KNOWN[module, name]


@lru_cache(maxsize=6)
def read_pickle(path: Path) -> dict[bytes, Any]:
    """The dictionary in a pickle of Python 2; its texts are bytes.

    Raises:
        UserError: damaged, no dictionary, or something in it that is no plain value and no array.
    """
    try:
        found = _PlainUnpickler(io.BytesIO(path.read_bytes()), encoding="bytes").load()
    except Exception as error:  # damaged pickles raise all sorts
        raise UserError(f"{path} cannot be read as a pickle of CIFAR ({error}). Get it again.") from None
    if not isinstance(found, dict):
        raise UserError(f"{path} holds a {type(found).__name__} and no dictionary. Get it again.")
    return found


def _value(values: dict[bytes, Any], key: str, path: Path) -> Any:
    if key.encode() not in values:
        raise UserError(f"{path} has no {key}: another file of that name? Get it again.")
    return values[key.encode()]
