"""Image collections, one file a dataset, found by file name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pipeline.config import parse, to_plain
from pipeline.datasets.base import Dataset
from pipeline.discovery import implementation, module_of, names
from pipeline.places import as_place
from pipeline.settings import kind_of, parse_settings

PACKAGE, WHAT = "pipeline.datasets", "dataset"


def dataset_names() -> list[str]:
    """The kinds of dataset there are."""
    return names(PACKAGE)


def dataset_class(name: str) -> type[Dataset]:
    """The dataset defined in ``pipeline/datasets/<name>.py``.

    Raises:
        UserError: there is no such dataset; lists the valid names.
    """
    return implementation(PACKAGE, name, WHAT, Dataset)


def check_dataset(values: Any, where: str = "dataset") -> dict[str, Any]:
    """``{kind: <name>, …}`` with every value filled in and checked; waits for the reader's packages only if it must.

    Raises:
        UserError: no or unknown ``kind``, unknown keys, values out of range.
    """
    kind, values = kind_of(values, where, PACKAGE, WHAT)
    settings = parse_settings(values, where, module_of(PACKAGE, kind, WHAT), lambda: dataset_class(kind))
    return {"kind": kind, **to_plain(settings)}


def make_dataset(values: Any, where: str = "dataset") -> Dataset:
    """The dataset that ``{kind: <name>, …}`` describes, which reads nothing yet; errors as of :func:`check_dataset`."""
    kind, values = kind_of(values, where, PACKAGE, WHAT)
    reader = dataset_class(kind)
    return reader(parse(reader.Config, values, where))


def where_keys_are_from(values: Any, where: str = "dataset") -> tuple[Any, ...]:
    """Two datasets whose keys are from the same place have the same image where they have the same key.

    Of a collection that is published as a whole any copy is the same place; of a user's own, the folder is, whichever
    way its path leads there.
    """
    kind, settings = kind_of(values, where, PACKAGE, WHAT)
    reader = dataset_class(kind)
    if reader.collection is not None:
        return (reader.collection,)
    if reader.about.class_count is not None:
        return (kind,)
    root = as_place(settings.get("root") or ".")
    return (kind, str(root.resolve() if isinstance(root, Path) else root))
