"""Datasets whose images lie in arrays; an image is given as PNG, which loses nothing."""

from __future__ import annotations

import io
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from pipeline.datasets._listing import Entry
from pipeline.datasets._published import PublishedDataset
from pipeline.errors import UserError

Pixels = NDArray[np.uint8]


def png(pixels: Pixels) -> bytes:
    """An image (H, W) or (H, W, 3) as PNG."""
    buffer = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(pixels)).save(buffer, "PNG")
    return buffer.getvalue()


class ArrayDataset(PublishedDataset):
    """Some files, each with arrays of images and of labels."""

    @abstractmethod
    def batches(self) -> Sequence[tuple[str, Path]]:
        """Name and file of each batch of the part. Names go into the keys: the same for every form of the dataset."""

    @abstractmethod
    def labels(self, path: Path) -> Sequence[int]:
        """Of each image in the file, from 0."""

    @abstractmethod
    def pixels(self, path: Path, index: int) -> Pixels:
        """Image ``index`` of the file, (H, W, 3)."""

    def find(self, passed_over: Counter[str]) -> Iterator[Entry]:
        """All images of the batches."""
        names = self.names()
        for number, (batch, path) in enumerate(self.batches()):
            labels = self.labels(path)
            if len(labels) and not 0 <= min(labels) <= max(labels) < len(names):
                raise UserError(
                    f"{path} has labels from {min(labels)} to {max(labels)}, but there are {len(names)} classes. "
                    "Get it again."
                )
            for index, label in enumerate(labels):
                yield Entry(names[label], f"{batch}/{index:05d}", "png", (number, index))

    def read(self, entry: Entry) -> bytes:
        """One image as PNG."""
        number, index = entry.place
        return png(self.pixels(self.batches()[number][1], index))


def fit(path: Path, images: Any, labels: Any, shape: tuple[int, ...]) -> None:
    """Images are bytes of the shape, as many as there are labels.

    Raises:
        UserError: they are not; names the file.
    """
    good = isinstance(images, np.ndarray) and images.dtype == np.uint8 and images.shape[1:] == shape
    if not good or len(images) != len(labels):
        raise UserError(
            f"{path} has images of shape {getattr(images, 'shape', None)} and {len(labels)} labels where (N, "
            f"{', '.join(map(str, shape))}) and N are expected. Get it again."
        )
