"""The clip art of the Debian package ``openclipart-png``: 8,121 PNGs in 165 class folders, public domain.

Real files with all that goes wrong in files: palettes, alpha, odd sizes, up to 623 megapixels. 6,900 are files, the
other 1,221 are symbolic links to a picture in another folder: one picture then has two classes. They are kept, since
without them fewer than 83 classes would have 20 images; but ``split=unseen`` leaves out every picture that also lies in
a seen class, so what is tested zero-shot was never seen. ``left_out()`` counts them.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from pipeline.config import config
from pipeline.datasets._folders import FolderDataset
from pipeline.datasets._listed import ListedConfig
from pipeline.datasets.base import About


class OpenClipart(FolderDataset):
    """``root`` is the unpacked package, or its folder ``usr/share/openclipart/png``."""

    about: ClassVar[About] = About(
        title="Open Clip Art Library 0.18",
        source="Debian package openclipart-png 1:0.18+dfsg (www.openclipart.org)",
        licence="public domain (Creative Commons Public Domain Dedication)",
    )
    inside = ("usr/share/openclipart/png",)
    remedy = (
        "Get it without root by: apt-get download openclipart-png && dpkg-deb -x openclipart-png_*.deb {root}, "
        "or set dataset.root"
    )

    @config
    class Config(ListedConfig):
        """What is taken of the clip art."""

        name: str = "openclipart"
        min_images_per_class: Annotated[int, Field(ge=1)] = 20
