"""Caltech 101: pictures of 101 sorts of things, 40 to 800 each; folder = class."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from pipeline.config import config
from pipeline.datasets._folders import FolderDataset
from pipeline.datasets._listed import ListedConfig
from pipeline.datasets._published import how_to_get
from pipeline.datasets.base import About

BACKGROUND = "BACKGROUND_Google"


class Caltech101(FolderDataset):
    """``root`` is ``101_ObjectCategories`` or a folder that it lies in. There is no split by its authors."""

    about: ClassVar[About] = About(
        title="Caltech 101",
        source="data.caltech.edu/records/mzrjq-6wc02",
        licence="CC BY 4.0",
        citation="Li, Andreeto, Ranzato and Perona, Caltech 101, CaltechDATA, 2022; Fei-Fei, Fergus and Perona, "
        "Learning generative visual models from few training examples, CVPR workshop, 2004",
        class_count=101,
        sizes={"all": 8_677},
    )
    inside = ("101_ObjectCategories", "caltech-101/101_ObjectCategories", "caltech101/101_ObjectCategories")
    remedy = how_to_get(
        about,
        "caltech-101.zip, and 101_ObjectCategories.tar.gz in it,",
        f"101_ObjectCategories/<class>/image_0001.jpg, …; {BACKGROUND} not counted",
    )

    @config
    class Config(ListedConfig):
        """Which of its things."""

        name: str = "caltech101"
        # Take BACKGROUND_Google too: pictures of none of the 101, which are no class.
        background: bool = False

    def not_wanted(self, source: Path) -> str:
        """The background is no class."""
        unwanted = source.parts[0] == BACKGROUND and not self.config.background
        return f"in {BACKGROUND}, which is no class" if unwanted else ""
