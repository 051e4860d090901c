"""Pig: 10,237 photographs of the tails of pigs, each labelled by several people; four classes."""

from __future__ import annotations

from typing import ClassVar

from pipeline.config import config
from pipeline.datasets._voted import VotedConfig, VotedDataset, remedy, voted
from pipeline.datasets.base import About

CLASSES = ("1_intact", "2_short", "3_fresh", "4_notVisible")


class Pig(VotedDataset):
    """``root`` is ``Pig`` or the folder that it lies in."""

    about: ClassVar[About] = voted(
        "Pig",
        CLASSES,
        (1947, 2129, 2007, 2039, 2115),
        "CC BY-SA 4.0",
    )
    inside = ("Pig",)
    remedy = remedy(about, "Pig")
    classes = CLASSES

    @config
    class Config(VotedConfig):
        """Which of its photographs."""

        name: str = "pig"
