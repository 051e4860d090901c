"""ImageNet-1k's 50,000 validation images with their reassessed labels (ReaL): none, one or several of 1,000 classes.

``real.json`` is a list of 50,000 lists of class numbers, in the order of ``ILSVRC2012_val_00000001.JPEG`` and so on;
classes count from 0 in the sorted order of their WNIDs. Checked on the published file (github.com/google-research/
reassessed-imagenet): 3,163 images have no label, 39,394 one and 7,443 several. Its README says that images without a
label take no part in an evaluation. The layouts of the images, and the devkit, are as public code reads them
(torchvision's ``datasets/imagenet.py`` and others); the licensed archives themselves could not be looked at.

Two images are relevant to each other if they share a label. The label of an image is that of 2012.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from pipeline.annotations import Annotations
from pipeline.class_lists import class_list
from pipeline.config import config
from pipeline.datasets._index import index_rows
from pipeline.datasets._listed import ListedConfig
from pipeline.datasets._listing import Entry
from pipeline.datasets._mat import read_structs
from pipeline.datasets._published import PublishedFiles, how_to_get, lines, looked_up
from pipeline.datasets.base import About
from pipeline.errors import UserError
from pipeline.relevance import SharedLabels

REAL = "real.json"
REAL_PLACES = ("", "reassessed-imagenet/", "reassessed-imagenet-master/", "../")
DEVKIT = ("ILSVRC2012_devkit_t12/data", "../ILSVRC2012_devkit_t12/data", "data")
META, TRUTH = "meta.mat", "ILSVRC2012_validation_ground_truth.txt"
KAGGLE, SOLUTION = "ILSVRC/Data/CLS-LOC/val", "LOC_val_solution.csv"  # instead of the devkit
IN_SOLUTION = ("ImageId", "PredictionString")  # WNID and box of each object, all of one class
IMAGE = re.compile(r"(?:(n\d{8})/)?ILSVRC2012_val_(\d{8})(?:_(n\d{8}))?\.JPEG")
IMAGES = 50_000


class Imagenet1kReal(PublishedFiles):
    """``root`` holds ``real.json`` and the images: in one folder a WNID, or all in one beside the devkit.

    Kaggle's copy has its ``LOC_val_solution.csv`` for the devkit, Hugging Face's the WNID in each name
    (``ILSVRC2012_val_00000293_n01440764.JPEG``).
    """

    about: ClassVar[About] = About(
        title="ImageNet-1k validation, ReaL labels",
        source="image-net.org/challenges/LSVRC/2012 (images), github.com/google-research/reassessed-imagenet (labels)",
        licence="ImageNet: non-commercial research and education only; labels: Apache 2.0",
        citation="Beyer, Hénaff, Kolesnikov, Zhai and van den Oord, Are we done with ImageNet?, "
        "arXiv:2006.07159, 2020; Russakovsky et al., ImageNet large scale visual recognition challenge, IJCV, 2015",
        class_count=1_000,
        sizes={"all": IMAGES},
    )
    inside = ("ILSVRC2012_img_val", "val", "val_images", "validation", KAGGLE)
    remedy = how_to_get(
        about,
        f"ILSVRC2012_img_val.tar, ILSVRC2012_devkit_t12.tar.gz and {REAL}",
        f"{REAL}, and below val <WNID>/ILSVRC2012_val_00000293.JPEG, … or ILSVRC2012_val_00000001.JPEG, … beside "
        f"ILSVRC2012_devkit_t12/data with {META} and {TRUTH}",
    )

    @config
    class Config(ListedConfig):
        """Which of its images."""

        name: str = "imagenet1k_real"

    def _found(self, what: str, folders: Sequence[str]) -> Path | None:
        bases = (self.config.root, self.folder())
        paths = (base / folder / what for base in bases for folder in folders)
        return next((path for path in paths if path.is_file()), None)

    def _real(self) -> Path:
        path = self._found(REAL, REAL_PLACES)
        if path is None:
            raise UserError(
                f"{self.config.name}: {self.folder()} has no {REAL}, nor has {self.config.root}. {self.advice}"
            )
        return path

    def needed(self) -> Sequence[str]:
        """The new labels."""
        return [str(self._real().absolute())]

    def names(self) -> Sequence[str]:
        """The WNIDs, sorted: the order that the numbers in ``real.json`` count in."""
        return class_list("imagenet1k", self.config.name)

    def check(self) -> None:
        """Besides, the new labels must be whole."""
        super().check()
        read_real(self._real())

    def looked_into(self) -> Sequence[Path]:
        """The folder of the images, and those of the classes in it."""
        return [self.folder(), *sorted(self.folder().glob("n*/"))]

    def find(self, passed_over: Counter[str]) -> Iterator[Entry]:
        """The images that are there; the folder is the class, or the name has it, or the devkit says it."""
        folder, known, taken = self.folder(), frozenset(self.names()), dict[int, str]()
        wnids: list[str] | None = None
        for path in (at for below in ("n*/", "") for at in sorted(folder.glob(f"{below}ILSVRC2012_val_*.JPEG"))):
            source = path.relative_to(folder).as_posix()
            match = IMAGE.fullmatch(source)
            if match is None or not 1 <= int(match[2]) <= IMAGES:
                passed_over["not called as an image of the validation set"] += 1
                continue
            other = taken.setdefault(int(match[2]), source)
            if other != source and match[1] is None:  # a script that sorts them copied where it should have moved
                passed_over["the same image lies in a folder of its class"] += 1
                continue
            if other != source:
                raise UserError(f"{self.config.name}: {folder} has one image twice, {other} and {source}. Remove one.")
            name = match[1] or match[3]
            if name is None:
                wnids = wnids or self._truth()
                name = wnids[int(match[2]) - 1]
            if name not in known:
                raise UserError(f"{self.config.name}: {folder / source}: {name} is none of the 1,000 classes.")
            yield Entry(name, source, "jpeg", (int(match[2]) - 1, 0), f"ILSVRC2012_val_{match[2]}")

    def _truth(self) -> list[str]:
        """WNID of each image, by the devkit or by Kaggle's list."""
        solution = self._found(SOLUTION, ("", "../" * len(Path(KAGGLE).parts)))
        if solution is not None:
            rows = {image: said.split()[0] for _, (image, said) in index_rows(solution, IN_SOLUTION, None)}
            images = [f"ILSVRC2012_val_{number:08d}" for number in range(1, IMAGES + 1)]
            if missing := [image for image in images if image not in rows]:
                raise UserError(f"{solution} has {len(missing):,} images not, such as {missing[0]}. Get it again.")
            return [rows[image] for image in images]
        meta, truth = (self._found(name, DEVKIT) for name in (META, TRUTH))
        if meta is None or truth is None:
            raise UserError(
                f"{self.config.name}: the images in {self.folder()} lie in no folders of their classes, so the devkit "
                f"must say them, but there is no {META if meta is None else TRUTH}. {self.advice}"
            )
        wnids = {int(number): str(wnid) for number, wnid in read_structs(meta, "synsets", "ILSVRC2012_ID", "WNID")}
        found = [looked_up(wnids, number, "class", meta) for (number,) in lines(truth, int)]
        if len(found) != IMAGES:
            raise UserError(f"{truth} has {len(found):,} lines where {IMAGES:,} are expected. Get it again.")
        return found

    def annotations(self) -> Annotations:
        """The new labels of each image as votes of one each, and as a relation."""
        real = read_real(self._real())
        entries = list(self._selection.entries(0, len(self)))
        labels = [list(real[entry.place[0]]) for _, entry in entries]
        names = self.names()
        votes_NA = np.zeros((len(entries), len(names)), np.uint8)
        for row, those in enumerate(labels):
            votes_NA[row, those] = 1
        return Annotations(
            keys=tuple(key for key, _ in entries),
            votes_NA=votes_NA,
            vote_names=tuple(names),
            relevance=SharedLabels.from_lists(labels),
        )


@lru_cache(maxsize=1)
def read_real(path: Path) -> tuple[tuple[int, ...], ...]:
    """The labels of each of the 50,000 images, in their order.

    Raises:
        UserError: damaged, another number of images, or labels that are not 0 to 999.
    """
    try:
        found: Any = json.loads(path.read_bytes())
        labels = tuple(tuple(int(label) for label in row) for row in found)
    except (ValueError, TypeError) as error:
        raise UserError(f"{path} is no list of lists of numbers ({error}). Get it again.") from None
    if len(labels) != IMAGES or any(not 0 <= label < 1_000 for row in labels for label in row):
        raise UserError(f"{path} has {len(labels):,} images, or labels beyond 0 to 999: {IMAGES:,} are expected.")
    return labels
