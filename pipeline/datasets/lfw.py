"""Labeled Faces in the Wild: 13,233 photographs of 5,749 people; a folder is a person.

4,069 people have one photograph, which no other can be like; by default only the 9,164 of the other 1,680 are taken.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from pipeline.config import config
from pipeline.datasets._folders import FlatFolders
from pipeline.datasets._listed import ListedConfig
from pipeline.datasets._published import how_to_get
from pipeline.datasets.base import About


class Lfw(FlatFolders):
    """``root`` is ``lfw``, ``lfw_funneled`` or ``lfw-deepfunneled``, or the folder that one of them lies in."""

    about: ClassVar[About] = About(
        title="Labeled Faces in the Wild",
        source="vis-www.cs.umass.edu/lfw",
        licence="not stated by its authors",
        citation="Huang, Ramesh, Berg and Learned-Miller, Labeled faces in the wild: a database for studying face "
        "recognition in unconstrained environments, University of Massachusetts, Amherst, 07-49, 2007",
        class_count=5_749,
        sizes={"all": 13_233},
    )
    inside = (
        *("lfw", "lfw_funneled", "lfw-deepfunneled"),
        *("lfw-py/lfw", "lfw-py/lfw_funneled", "lfw-py/lfw-deepfunneled"),  # torchvision's
    )
    remedy = how_to_get(
        about,
        "lfw.tgz (or lfw-funneled.tgz, lfw-deepfunneled.tgz)",
        "lfw/<First_Last>/<First_Last>_0001.jpg, …",
    )

    @config
    class Config(ListedConfig):
        """Which of its people."""

        name: str = "lfw"
        # People with fewer photographs are left out; 1 takes all 5,749.
        min_images_per_class: Annotated[int, Field(ge=1)] = 2
