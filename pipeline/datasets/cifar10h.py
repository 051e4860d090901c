"""CIFAR-10H: the 10,000 test images of CIFAR-10, each labelled by 47 to 63 people.

The counts lie beside CIFAR-10's own files, in the order of its test batch. Form, order and range were checked on the
authors' published arrays (github.com/jcpeterson/cifar-10h: ``data/cifar10h-counts.npy``, int64 of 10,000 × 10, and
``data/cifar10h-probs.npy``, float64, rows that add up to one).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from pipeline.annotations import Annotations
from pipeline.config import config
from pipeline.datasets._listed import ListedConfig
from pipeline.datasets._published import how_to_get
from pipeline.datasets.base import About
from pipeline.datasets.cifar10 import TEST, Cifar10
from pipeline.errors import UserError

VOTES = ("cifar10h-counts.npy", "cifar10h-probs.npy")  # the counts, or the shares that they are
PLACES = ("", "data/", "cifar-10h/data/", "cifar-10h-master/data/")  # below root


class Cifar10h(Cifar10):
    """``root`` holds one of the two forms of CIFAR-10, as for ``cifar10``, and the votes or a copy of their repository.

    The label is CIFAR-10's own; how people voted is in :meth:`annotations`.
    """

    about: ClassVar[About] = About(
        title="CIFAR-10H",
        source="github.com/jcpeterson/cifar-10h (images: www.cs.toronto.edu/~kriz/cifar.html)",
        licence="CC BY-NC-SA 4.0 (votes); not stated by the authors of CIFAR-10 (images)",
        citation="Peterson, Battleday, Griffiths and Russakovsky, Human uncertainty makes classification more robust, "
        "ICCV, 2019",
        class_count=10,
        sizes={"all": 10_000},
    )
    remedy = how_to_get(
        about,
        f"{VOTES[0]} and cifar-10-binary.tar.gz (or cifar-10-python.tar.gz)",
        f"{VOTES[0]} or {VOTES[1]}, and in or beside its folder cifar-10-batches-bin test_batch.bin and "
        "batches.meta.txt",
    )
    parts: ClassVar = {"test": TEST}

    @config
    class Config(ListedConfig):
        """Which of its images."""

        name: str = "cifar10h"

    def batches(self) -> Sequence[tuple[str, Path]]:
        """The test batch, in the form that is there."""
        return [(name, self.folder() / f"{name}{self.ending()}") for name in TEST]

    def check(self) -> None:
        """Besides, the votes must be there and fit the images."""
        super().check()
        self._votes()

    def _votes(self) -> NDArray[np.float64]:
        """(10,000, 10): counts, or shares."""
        folders = (self.config.root, self.folder())
        paths = [folder / place / name for name in VOTES for folder in folders for place in PLACES]
        path = next((path for path in paths if path.is_file()), None)
        if path is None:
            raise UserError(f"{self.config.name}: {self.config.root} has no {' and no '.join(VOTES)}. {self.advice}")
        try:
            votes_NA = np.asarray(np.load(path, allow_pickle=False), dtype=np.float64)
        except (ValueError, EOFError, OSError) as error:
            raise UserError(f"{path} cannot be read as an array ({error}). Get it again.") from None
        images = len(self.labels(self.batches()[0][1]))
        if votes_NA.shape != (images, len(self.names())) or not (votes_NA >= 0).all():
            raise UserError(
                f"{path} has the shape {votes_NA.shape}, or votes below 0, where {images} images of "
                f"{len(self.names())} classes are expected. Get it again."
            )
        return votes_NA

    def annotations(self) -> Annotations:
        """How many people chose each class."""
        entries = list(self._selection.entries(0, len(self)))
        rows = np.array([entry.place[1] for _, entry in entries])
        return Annotations(
            keys=tuple(key for key, _ in entries), votes_NA=self._votes()[rows], vote_names=tuple(self.names())
        )
