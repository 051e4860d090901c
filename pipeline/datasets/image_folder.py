"""Anyone's images: one folder a class, as ``torchvision.datasets.ImageFolder`` has it, nested or not."""

from __future__ import annotations

from typing import ClassVar

from pipeline.config import config
from pipeline.datasets._folders import FolderDataset
from pipeline.datasets._listed import ListedConfig
from pipeline.datasets.base import About


class ImageFolder(FolderDataset):
    """Folder = class; nested folders give names such as ``animals/birds``."""

    about: ClassVar[About] = About(
        title="A folder of images",
        source="the user's own; folder = class",
        licence="not stated: ask whoever owns the images",
    )

    @config
    class Config(ListedConfig):
        """What is taken of the folder."""

        name: str = "image_folder"
