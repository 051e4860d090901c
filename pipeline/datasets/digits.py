"""The digits of scikit-learn, one by one: 1,797 grey images of 8 × 8 pixels of ten classes that need no download."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import numpy as np

from pipeline.config import config
from pipeline.datasets._arrays import png
from pipeline.datasets._digits import digits
from pipeline.datasets._listed import ListedConfig, ListedDataset
from pipeline.datasets._listing import Entry
from pipeline.datasets.base import About
from pipeline.errors import UserError
from pipeline.places import LocalPath


class Digits(ListedDataset):
    """As PNG; a pixel that counts 0 to 16 in the source is multiplied by 255 / 16 and rounded."""

    shares_files: ClassVar[bool] = False
    about: ClassVar[About] = About(
        title="Digits of scikit-learn",
        source="sklearn.datasets.load_digits (test set of the UCI Optical Recognition of Handwritten Digits)",
        licence="BSD-3-Clause (scikit-learn), CC BY 4.0 (UCI)",
        citation="Alpaydin and Kaynak, Optical recognition of handwritten digits, UCI, 1998",
        class_count=10,
        sizes={"all": 1_797},
    )
    remedy = "The digits come with scikit-learn."

    @config
    class Config(ListedConfig):
        """Which of the digits."""

        name: str = "digits"
        # Not used: the digits come with scikit-learn.
        root: LocalPath = Path()

    def check(self) -> None:
        """Nothing can be missing, but all may be left out."""
        if not len(self):
            raise UserError(f"{self.config.name}: no digit is taken. Left out: {dict(self.left_out())}.")

    def find(self, passed_over: Counter[str]) -> Iterator[Entry]:
        """All of them."""
        for number, label in enumerate(digits()[1].tolist()):
            yield Entry(str(label), f"digit/{number:04d}", "png", (number, 0))

    def read(self, entry: Entry) -> bytes:
        """8 × 8 grey pixels."""
        return png((digits()[0][entry.place[0]] * (255 / 16)).round().astype(np.uint8))
