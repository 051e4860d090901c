"""The record that is written first: whose work lies in a folder. Resuming with another config is refused."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from pipeline.digests import difference, digest
from pipeline.errors import DamagedError, UserError
from pipeline.files import sweep_partials, write_bytes
from pipeline.places import Place
from pipeline.sealed import read_sealed, write_sealed

RUN_RECORD = "run.json"
RUN_COPY = "run.copy.json"  # of a record that nothing else could tell: damage to one of the two loses nothing


def code_version() -> str:
    """The version of this package, noted in run records; "source" where it is not installed."""
    try:
        return f"hedgerow {version('hedgerow')}"
    except PackageNotFoundError:
        return "source"


def refuse_other(record: Place, meaning: Mapping[str, Any], what: str) -> None:
    """Write the run record if there is none; if there is one of another config, refuse with the difference.

    Args:
        record: the file, usually ``<folder>/run.json``.
        meaning: plain values that decide every byte of the work.
        what: whose work it is, for the message.

    Raises:
        UserError: another config's work lies there, or the record is damaged.
    """
    sweep_partials(record.parent)
    if not record.exists():
        write_sealed(record, {"code": code_version(), "digest": digest(meaning), "meaning": meaning})
        return
    stored = read_sealed(record)
    if stored["digest"] != digest(meaning):
        lines = "\n  ".join(difference(stored["meaning"], meaning))
        raise UserError(
            f"{what}: {record.parent} holds the work of another config (old → new):\n  {lines}\n"
            "Take another output folder, or the old values."
        )


def check_record(record: Place) -> list[str]:
    """What is wrong with a record that the config alone can make again; a damaged one is renamed ``<name>.damaged``."""
    try:
        read_sealed(record)
    except FileNotFoundError:
        return [f"{record} is missing"]
    except DamagedError:
        put_aside(record)
        return [f"{record} is damaged"]
    return []


def put_aside(record: Place) -> None:
    """Rename a damaged record ``<name>.damaged``, so that it is made again and nothing of it is lost."""
    write_bytes(record.with_name(f"{record.name}.damaged"), record.read_bytes())
    record.unlink(missing_ok=True)


def recall(folder: Place) -> dict[str, Any] | None:
    """The run record of a folder that keeps a copy of it; None if there is neither.

    Raises:
        pipeline.sealed.DamagedError: the record is damaged, or it is gone and its copy is damaged.
    """
    found = [path for path in (folder / RUN_RECORD, folder / RUN_COPY) if path.exists()]
    return read_sealed(found[0]) if found else None


def restore(folder: Place) -> None:
    """Make the record again from its copy, where it is gone; byte for byte."""
    record, copy = folder / RUN_RECORD, folder / RUN_COPY
    if copy.exists() and not record.exists():
        write_bytes(record, copy.read_bytes())


def keep_copy(folder: Place) -> None:
    """Make the copy of the record, where it is gone."""
    record, copy = folder / RUN_RECORD, folder / RUN_COPY
    if not copy.exists():
        write_bytes(copy, record.read_bytes())
