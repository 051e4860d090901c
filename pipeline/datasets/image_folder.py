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
        """Besides, folders of parts may be no classes, and no class may lie in two of them.

        It would be two classes, one of them maybe seen, the other unseen; and a part without classes would be one.
        """
        super().check()
        names = sorted(self._wanted_classes or self._selection.listing.class_names)
        first, divided = dict[tuple[str, ...], str](), dict[tuple[str, ...], str]()
        for name in names:
            *above, last = name.split("/")
            for depth, folder in enumerate(above):
                if folder.lower() in PARTS:
                    divided.setdefault(tuple(above[:depth]), name)
            other = first.setdefault((*(folder for folder in above if folder.lower() not in PARTS), last), name)
            if other != name:
                raise self._no_classes(f"{name} and {other} are one class in two parts, but would be taken as two")
        for name in names:
            *above, last = name.split("/")
            if last.lower() in PARTS and tuple(above) in divided:
                raise self._no_classes(
                    f"{name} holds images beside {divided[tuple(above)]}: a part, but would be taken as a class"
                )

    def _no_classes(self, what: str) -> UserError:
        return UserError(
            f"{self.config.name}: in {self.folder()}, {what}. Set dataset.root to the folder of one part, or link the "
            "images of all parts into one folder a class."
        )
