"""Turkey: 8,040 photographs of turkeys and their injuries, each labelled by several people; three classes."""

from __future__ import annotations

from typing import ClassVar

from pipeline.config import config
from pipeline.datasets._voted import VotedConfig, VotedDataset, remedy, voted
from pipeline.datasets.base import About

CLASSES = ("head_injury", "not_injured", "plumage_injury")


class Turkey(VotedDataset):
    """``root`` is ``Turkey`` or the folder that it lies in."""

    about: ClassVar[About] = voted(
        "Turkey",
        CLASSES,
        (1384, 1761, 1672, 1431, 1792),
        "CC BY-SA 4.0",
        "Volkmann, Brünger, Stracke, Zelenka, Koch, Kemper and Spindler, Learn to train: improving training data for a "
        "neural network to detect pecking injuries in turkeys, Animals, 2021; Volkmann et al., Keypoint detection for "
        "injury identification during turkey husbandry using neural networks, Sensors, 2022",
    )
    inside = ("Turkey",)
    remedy = remedy(about, "Turkey")
    classes = CLASSES

    @config
    class Config(VotedConfig):
        """Which of its photographs."""

        name: str = "turkey"
