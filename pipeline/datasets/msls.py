"""Mapillary Street-level Sequences (MSLS): photographs of streets with their places; near photographs are relevant.

A city is a folder of ``query`` and ``database``, each with ``images/<key>.jpg``, ``postprocessed.csv`` (easting and
northing in metres of UTM, …), ``raw.csv`` (whether it is a panorama, …) and ``subtask_index.csv``; rows of the three go
together. As the authors' code has it (github.com/mapillary/mapillary_sls: ``datasets/msls.py``, ``evaluate.py`` and the
README, which were checked; the data themselves ask for an agreement and were not seen): a query is right when a
photograph of the database that lies within 25 m is found, queries that have none are not judged, panoramas are left
out, and of the cities to validate on the subtask ``all`` is taken. The six test cities are published without places.

The class of an image is its city.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from pipeline.annotations import Annotations
from pipeline.config import config
from pipeline.datasets._listed import ListedConfig
from pipeline.datasets._listing import Entry
from pipeline.datasets._published import PublishedFiles, how_to_get
from pipeline.datasets.base import About
from pipeline.errors import UserError
from pipeline.relevance import Nearby

CITIES = {  # the authors' lists
    "train": (
        *("trondheim", "london", "boston", "melbourne", "amsterdam", "helsinki", "tokyo", "toronto", "saopaulo"),
        *("moscow", "zurich", "paris", "bangkok", "budapest", "austin", "berlin", "ottawa", "phoenix", "goa"),
        *("amman", "nairobi", "manila"),
    ),
    "val": ("cph", "sf"),
}
SIDES = ("query", "database")
PLACES, RAW, SUBTASKS = "postprocessed.csv", "raw.csv", "subtask_index.csv"


class Msls(PublishedFiles):
    """``root`` holds ``train_val``, or is the folder that it lies in."""

    about: ClassVar[About] = About(
        title="Mapillary Street-level Sequences",
        source="www.mapillary.com/dataset/places",
        licence="for academic research; the terms are agreed to before the download",
        citation="Warburg, Hauberg, López-Antequera, Gargallo, Kuang and Civera, Mapillary street-level sequences: a "
        "dataset for lifelong place recognition, CVPR, 2020",
        class_count=30,  # cities, of which 6 are published without places
    )
    inside = ("train_val", "msls/train_val")
    remedy = how_to_get(
        about,
        "images_vol_1.zip, …, metadata.zip and the patches",
        f"train_val/<city>/query and database, each with images/<key>.jpg, {PLACES}, {RAW} and {SUBTASKS}",
    )

    @config
    class Config(ListedConfig):
        """Which of its cities."""

        name: str = "msls"
        # val: Copenhagen and San Francisco; train: the 22 cities to train on; all: both.
        part: Literal["train", "val", "all"] = "val"
        # Take only these cities of the part.
        cities: tuple[str, ...] = ()
        # In metres: photographs that are no farther apart are of one place.
        radius: Annotated[float, Field(gt=0)] = 25.0
        # Take panoramas too.
        panoramas: bool = False

    def cities(self) -> list[str]:
        """Those that are taken; an error where one is not of the part."""
        known = [city for part in ("val", "train") for city in CITIES[part] if self.config.part in (part, "all")]
        if unknown := sorted(set(self.config.cities) - set(known)):
            raise UserError(f"dataset.cities: {', '.join(unknown)} are not of the part; it has {', '.join(known)}.")
        return [city for city in known if not self.config.cities or city in self.config.cities]

    def needed(self) -> Sequence[str]:
        """Lists and images of both sides of every city."""
        sides = [f"{city}/{side}" for city in self.cities() for side in SIDES]
        lists = [f"{side}/{name}" for side in sides for name in (PLACES, RAW)]
        tasks = [f"{city}/{side}/{SUBTASKS}" for city in self.cities() if city in CITIES["val"] for side in SIDES]
        return [*lists, *tasks, *(f"{side}/images" for side in sides)]

    def find(self, passed_over: Counter[str]) -> Iterator[Entry]:
        """The photographs of the lists."""
        for number, city in enumerate(self.cities()):
            for side in SIDES:
                for row, (key, taken, why) in enumerate(self._rows(city, side)):
                    if not taken:
                        passed_over[why] += 1
                        continue
                    place = (number * len(SIDES) + SIDES.index(side), row)
                    yield Entry(city, f"{city}/{side}/images/{key}.jpg", "jpg", place)

    def _rows(self, city: str, side: str) -> Iterator[tuple[str, bool, str]]:
        """Key of each row, whether it is taken, and why not."""
        folder = self.folder() / city / side
        places, raw = read_table(folder / PLACES, ("key",)), read_table(folder / RAW, ("key", "pano"))
        tasks = read_table(folder / SUBTASKS, ("all",)) if city in CITIES["val"] else [("True",)] * len(places)
        if not len(places) == len(raw) == len(tasks) or any(a[0] != b[0] for a, b in zip(places, raw, strict=True)):
            raise UserError(
                f"{folder}: {PLACES}, {RAW} and {SUBTASKS} are not of the same photographs. Get them again."
            )
        for (key,), (_, panorama), (in_task,) in zip(places, raw, tasks, strict=True):
            if panorama == "True" and not self.config.panoramas:
                yield key, False, "panorama"
            else:
                yield key, in_task == "True", "not of the subtask all"

    def annotations(self) -> Annotations:
        """Where each photograph was taken, and on which side it stands."""
        cities = self.cities()
        entries = list(self._selection.entries(0, len(self)))
        side_N = np.array([entry.place[0] for _, entry in entries], dtype=np.int64)
        row_N = np.array([entry.place[1] for _, entry in entries], dtype=np.int64)
        position_N2 = np.full((len(entries), 2), np.nan)
        for number in np.unique(side_N).tolist():
            folder = self.folder() / cities[number // len(SIDES)] / SIDES[number % len(SIDES)]
            here_N = side_N == number
            position_N2[here_N] = _positions(folder / PLACES)[row_N[here_N]]
        query_N = side_N % len(SIDES) == SIDES.index("query")
        relevance = Nearby(
            position_N2=position_N2,
            group_N=(side_N // len(SIDES)).astype(np.int32),
            query_N=query_N,
            database_N=~query_N,
            radius=self.config.radius,
        )
        return Annotations(keys=tuple(key for key, _ in entries), relevance=relevance)


def _positions(path: Path) -> Any:
    """(rows, 2) easting and northing in metres."""
    try:
        return np.array(read_table(path, ("easting", "northing")), dtype=np.float64).reshape(-1, 2)
    except ValueError as error:
        raise UserError(f"{path}: easting or northing is no number ({error}). Get it again.") from None


@lru_cache(maxsize=16)
def read_table(path: Path, columns: tuple[str, ...]) -> list[tuple[str, ...]]:
    """The columns of a CSV with a header, row by row.

    Raises:
        UserError: a column is not there, a row is too short, or it is no text.
    """
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            table = csv.DictReader(file)
            missing = [name for name in columns if name not in (table.fieldnames or ())]
            if missing:
                raise UserError(f"{path} has no column {', '.join(missing)}. Get it again.")
            rows = [tuple(row[name] for name in columns) for row in table]
    except (UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"{path} is no table ({error}). Get it again.") from None
    short = next((number for number, row in enumerate(rows, 2) if None in row), None)
    if short is not None:
        raise UserError(f"{path}, line {short}: too few values. Get it again.")
    return rows
