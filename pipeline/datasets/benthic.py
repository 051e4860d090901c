"""Benthic: 4,867 photographs of animals on the sea floor, each labelled by several people; eight classes."""

from __future__ import annotations

from typing import ClassVar

from pipeline.config import config
from pipeline.datasets._voted import VotedConfig, VotedDataset, remedy, voted
from pipeline.datasets.base import About

CLASSES = ("coral", "crustacean", "cucumber", "encrusting", "other_fauna", "sponge", "star", "worm")


class Benthic(VotedDataset):
    """``root`` is ``Benthic`` or the folder that it lies in."""

    about: ClassVar[About] = voted(
        "Benthic",
        CLASSES,
        (907, 955, 958, 990, 1057),
        "CC BY-SA 4.0",
        "Schoening et al., Megafauna community assessment of polymetallic-nodule fields with cameras, Biogeosciences, "
        "2020; Langenkämper, van Kevelaer, Purser and Nattkemper, Gear-induced concept drift in marine images and its "
        "effect on deep learning classification, Frontiers in Marine Science, 2020",
    )
    inside = ("Benthic",)
    remedy = remedy(about, "Benthic")
    classes = CLASSES

    @config
    class Config(VotedConfig):
        """Which of its photographs."""

        name: str = "benthic"
