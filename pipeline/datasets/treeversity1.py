"""Treeversity#1: 9,489 photographs of parts of plants, each labelled by several people; six classes."""

from __future__ import annotations

from typing import ClassVar

from pipeline.config import config
from pipeline.datasets._voted import VotedConfig, VotedDataset, remedy, voted
from pipeline.datasets.base import About

CLASSES = ("bark", "bud", "flower", "fruit", "leaf", "whole_plant")


class Treeversity1(VotedDataset):
    """``root`` is ``Treeversity#1`` or the folder that it lies in."""

    about: ClassVar[About] = voted(
        "Treeversity#1",
        CLASSES,
        (1820, 1912, 1905, 1966, 1886),
        "CC BY-SA 4.0; the copyright of the images is with the President and Fellows of Harvard College",
        "Arnold Arboretum, The TreeVersity dataset, 2020",
    )
    inside = ("Treeversity#1",)
    remedy = remedy(about, "Treeversity#1")
    classes = CLASSES

    @config
    class Config(VotedConfig):
        """Which of its photographs."""

        name: str = "treeversity1"
