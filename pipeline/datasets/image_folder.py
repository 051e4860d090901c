"""Anyone's images: one folder a class, as ``torchvision.datasets.ImageFolder`` has it, nested or not."""

from __future__ import annotations

from typing import ClassVar

from pipeline.config import config
from pipeline.datasets._folders import FolderDataset
from pipeline.datasets._listed import ListedConfig
from pipeline.datasets.base import About
from pipeline.errors import UserError

#: What folders of parts are called where each holds all classes anew.
PARTS = frozenset({"train", "training", "val", "valid", "validation", "dev", "eval", "test", "testing"})


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

    def check(self) -> None:
        """Besides, no class may lie in two parts: it would be two classes, one of them maybe seen, the other unseen."""
        super().check()
        taken = self._wanted_classes or self._selection.listing.class_names
        first: dict[tuple[str, ...], str] = {}
        for name in sorted(taken):
            *above, last = name.split("/")
            other = first.setdefault((*(folder for folder in above if folder.lower() not in PARTS), last), name)
            if other != name:
                raise UserError(
                    f"{self.config.name}: {name} and {other} in {self.folder()} are one class in two parts, but would "
                    "be taken as two. Set dataset.root to the folder of one part, or link the images of all parts into "
                    "one folder a class."
                )
