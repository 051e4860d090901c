"""Image collections, one file a dataset, found by file name."""

from __future__ import annotations

from typing import Any

from pipeline.config import parse
from pipeline.datasets.base import Dataset
from pipeline.discovery import implementation, names
from pipeline.errors import UserError


def dataset_names() -> list[str]:
    """The kinds of dataset there are."""
    return names("pipeline.datasets")


def dataset_class(name: str) -> type[Dataset]:
    """The dataset defined in ``pipeline/datasets/<name>.py``.

    Raises:
        UserError: there is no such dataset; lists the valid names.
    """
    return implementation("pipeline.datasets", name, "dataset", Dataset)


def make_dataset(values: Any, where: str = "dataset") -> Dataset:
    """The dataset that ``{kind: <name>, root: …, …}`` describes. Reads nothing yet.

    Raises:
        UserError: no or unknown ``kind``, unknown keys, values out of range.
    """
    values = dict(values)
    kind = values.pop("kind", None)
    if kind is None:
        raise UserError(f"{where}.kind: needs the name of a dataset reader. Valid: {', '.join(dataset_names())}.")
    reader = dataset_class(str(kind))
    return reader(parse(reader.Config, values, where))
