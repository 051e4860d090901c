"""The stamps of Tux Paint (Debian package ``tuxpaint-stamps-default``): 796 PNGs, mostly cut-out photographs.

The folders are topics up to four deep, many with one image; the first two names (``animals/mammals``) give classes
that mean something. Left out are 355 drawings (folders called ``cartoon`` at any depth, and ``symbols``: letters,
coins, signs) and 11 mirror images of other stamps; by default 419 images of 45 classes of at least two remain.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import Field

from pipeline.config import config
from pipeline.datasets._folders import FolderDataset
from pipeline.datasets._listed import ListedConfig
from pipeline.datasets.base import About

MIRRORED = "_mirror"


class TuxPaint(FolderDataset):
    """``root`` is the unpacked package, or its folder ``usr/share/tuxpaint/stamps``."""

    about: ClassVar[About] = About(
        title="Tux Paint stamps 2022.06.04",
        source="Debian package tuxpaint-stamps-default 2022.06.04-1 (www.tuxpaint.org)",
        licence="GPL-2",
        citation="Kendrick and contributors, Tux Paint stamps, 2002-2022",
    )
    inside = ("usr/share/tuxpaint/stamps",)
    remedy = (
        "Get it without root by: apt-get download tuxpaint-stamps-default && "
        "dpkg-deb -x tuxpaint-stamps-default_*.deb {root}, or set dataset.root"
    )

    @config
    class Config(ListedConfig):
        """Which of its stamps."""

        name: str = "tuxpaint"
        min_images_per_class: Annotated[int, Field(ge=1)] = 2
        # So many names of the path are the class: 2 = animals/mammals, 3 = animals/mammals/cats.
        levels: Annotated[int, Field(ge=1)] = 2
        # Take cartoons and symbols too.
        drawings: bool = False

    def class_of(self, source: Path) -> str:
        """The first names of the path."""
        return "/".join(source.parent.parts[: self.config.levels])

    def not_wanted(self, source: Path) -> str:
        """Mirror images are no second picture; drawings are left out unless they are asked for."""
        if source.stem.endswith(MIRRORED):
            return "mirror image of another stamp"
        drawn = "cartoon" in source.parts or source.parts[0] == "symbols"
        return "" if self.config.drawings or not drawn else "a cartoon or a symbol"
