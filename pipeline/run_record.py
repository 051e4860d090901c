"""The record that is written first: whose work lies in a folder. Resuming with another config is refused."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from pipeline.digests import difference, digest
from pipeline.errors import UserError
from pipeline.files import read_json, sweep_partials, write_json
from pipeline.places import Place

RUN_RECORD = "run.json"


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
        UserError: another config's work lies there.
    """
    sweep_partials(record.parent)
    if not record.exists():
        write_json(record, {"code": code_version(), "digest": digest(meaning), "meaning": meaning})
        return
    stored = read_json(record)
    if stored["digest"] != digest(meaning):
        lines = "\n  ".join(difference(stored["meaning"], meaning))
        raise UserError(
            f"{what}: {record.parent} holds the work of another config (old → new):\n  {lines}\n"
            "Take another output folder, or the old values."
        )
