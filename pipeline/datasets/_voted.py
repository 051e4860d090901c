"""The datasets of the data-centric image classification benchmark (DCIC): every image was labelled by several people.

Schmarje et al., *Is one annotation enough? A data-centric image classification benchmark for noisy and ambiguous label
estimation*, NeurIPS 2022. A dataset is a folder of ``fold1`` to ``fold5`` and ``annotations.json``: a list of
annotators, each with a list ``annotations`` of ``{image_path, class_label, created_at}``. Paths begin with the name of
the dataset (``Turkey/fold1/….png``); a label that is null was no answer. The layout, the classes and the number of
images of each fold were checked against the authors' code (github.com/Emprime/dcic: ``src/util/oracle.py`` and
``src/datasets``), which asserts them, not against the published archives themselves.

The parts are those of the authors' five slices, as their README counts them: in the first, fold 1 validates, fold 2
tests and folds 3 to 5 train. URL (Kirchhof et al., 2023) reports the test of the first: one fold, a fifth of the images
(github.com/mkirchhof/url: ``timm/data/readers/reader_isoneannotationenough.py``).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from pipeline.annotations import Annotations
from pipeline.config import config
from pipeline.datasets._listed import ListedConfig
from pipeline.datasets._listing import Entry
from pipeline.datasets._published import PublishedFiles, how_to_get
from pipeline.datasets.base import About
from pipeline.errors import UserError

VOTES = "annotations.json"
PARTS = {"val": (1,), "test": (2,), "train": (3, 4, 5), "all": (1, 2, 3, 4, 5)}  # folds of the first slice
ARTICLE = (
    "Schmarje, Grossmann, Zelenka, Dippel, Kiko, Oszust, Pastell, Stracke, Valros, Volkmann and Koch, Is one "
    "annotation enough? A data-centric image classification benchmark for noisy and ambiguous label estimation, "
    "NeurIPS datasets and benchmarks, 2022"
)


@config
class VotedConfig(ListedConfig):
    """Which of its images."""

    # val: fold 1; test: fold 2, as in URL; train: folds 3 to 5; all: every fold.
    part: Literal["train", "val", "test", "all"] = "test"
    # Which of the authors' five slices: in the second the folds are 2, 3, and 4, 5, 1; and so on in a circle.
    partition: Annotated[int, Field(ge=1, le=5)] = 1


class VotedDataset(PublishedFiles):
    """The label is the class with most votes, the first of equals; how people voted is in :meth:`annotations`."""

    classes: ClassVar[tuple[str, ...]]  # sorted, as the authors count them

    def folds(self) -> list[str]:
        """Folders of the part."""
        turned = self.config.partition - 1
        return sorted(f"fold{(number - 1 + turned) % 5 + 1}" for number in PARTS[self.config.part])

    def needed(self) -> Sequence[str]:
        """The votes and the images."""
        return [VOTES, *self.folds()]

    def names(self) -> Sequence[str]:
        """The authors' names, in their order."""
        return self.classes

    def find(self, passed_over: Counter[str]) -> Iterator[Entry]:
        """The images of the part that have a vote."""
        folds = frozenset(self.folds())
        for source, vote_A in self._votes().items():
            if source.partition("/")[0] in folds:
                yield Entry(self.classes[int(vote_A.argmax())], source, source.rpartition(".")[2].lower())

    def _votes(self) -> dict[str, NDArray[np.int32]]:
        return read_votes(self.folder() / VOTES, self.classes)

    def annotations(self) -> Annotations:
        """How many people chose each class."""
        votes = self._votes()
        entries = list(self._selection.entries(0, len(self)))
        return Annotations(
            keys=tuple(key for key, _ in entries),
            votes_NA=np.stack([votes[entry.source] for _, entry in entries]),
            vote_names=self.classes,
        )


@lru_cache(maxsize=2)
def read_votes(path: Path, classes: tuple[str, ...]) -> dict[str, NDArray[np.int32]]:
    """Path of each image below the dataset's folder → its votes for each class, (A,), in sorted order of the paths.

    Raises:
        UserError: damaged, of another form, or a class that the dataset does not have.
    """
    places = {name: place for place, name in enumerate(classes)}
    found: dict[str, NDArray[np.int32]] = {}
    for image, label in _answers(path):
        if label not in places:
            raise UserError(f"{path} has the class {label!r}, but there are {', '.join(classes)}. Get it again.")
        source = image.partition("/")[2]
        if not source or ".." in source.split("/"):
            raise UserError(f"{path}: {image!r} is not of the form <dataset>/<fold>/<image>. Get it again.")
        found.setdefault(source, np.zeros(len(classes), np.int32))[places[label]] += 1
    return dict(sorted(found.items()))


def _answers(path: Path) -> Iterator[tuple[str, str]]:
    """Image and class of each answer, by whomever."""
    try:
        annotators: Any = json.loads(path.read_bytes())
        for annotator in annotators:
            for answer in annotator["annotations"]:
                if answer["class_label"] is not None:
                    yield str(answer["image_path"]), str(answer["class_label"])
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path} is no list of annotators with their annotations ({error!r}). Get it again.") from None


def voted(name: str, classes: tuple[str, ...], folds: Sequence[int], licence: str, more: str = "") -> About:
    """What is known of one of the datasets.

    Args:
        name: of it, and of its folder.
        classes: it has.
        folds: how many images are in each; the sizes of the parts are those of the first slice.
        licence: of it.
        more: further articles to cite.
    """
    assert len(folds) == 5, name
    return About(
        title=f"{name} (DCIC)",
        source="doi.org/10.5281/zenodo.7152309",
        licence=licence,
        citation=f"{more}; {ARTICLE}" if more else ARTICLE,
        class_count=len(classes),
        sizes={part: sum(folds[number - 1] for number in of) for part, of in PARTS.items()},
    )


def remedy(about: About, folder: str) -> str:
    """What is expected there."""
    return how_to_get(
        about, f"{folder.replace('#', '')}.zip", f"{folder} with {VOTES} and fold1/<image>.png to fold5/<image>.png"
    )
