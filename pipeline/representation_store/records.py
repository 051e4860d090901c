"""Commit records: a unit counts once its record stands. Facts only, so that every run writes the same bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pipeline.errors import UserError
from pipeline.faults import Quarantined
from pipeline.files import PARTIAL, read_json, write_json
from pipeline.places import Place


@dataclass(frozen=True, kw_only=True)
class Commit:
    """What is true of a finished unit.

    Attributes:
        unit: its index.
        name: the input tar's name.
        rows: rows stored, the first ones of the unit's region.
        quarantined: samples left out, in tar order.
        checksums: array → hex SHA-256 of its shard object; None where nothing needed storing.
    """

    unit: int
    name: str
    rows: int
    quarantined: tuple[Quarantined, ...] = ()
    checksums: Mapping[str, str | None] = field(default_factory=dict)


def record_path(folder: Place, unit: int) -> Place:
    """``<folder>/000012.json``."""
    return folder / f"{unit:06d}.json"


def write_commit(folder: Place, commit: Commit) -> None:
    """Write the record of a unit, atomically, after everything it speaks of."""
    plain: dict[str, Any] = {
        "unit": commit.unit,
        "name": commit.name,
        "rows": commit.rows,
        "quarantined": [{"key": item.key, "reason": item.reason} for item in commit.quarantined],
        "checksums": dict(commit.checksums),
    }
    write_json(record_path(folder, commit.unit), plain)


def read_commit(path: Place) -> Commit:
    """Read a record.

    Raises:
        UserError: the file is damaged; says to remove it, which makes the unit run again.
    """
    try:
        plain = read_json(path)
        return Commit(
            unit=plain["unit"],
            name=plain["name"],
            rows=plain["rows"],
            quarantined=tuple(Quarantined(**item) for item in plain["quarantined"]),
            checksums=plain["checksums"],
        )
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path}: the commit record is damaged ({error}). Remove it: its unit runs again.") from error


def committed_units(folder: Place) -> list[int]:
    """The units that have a record, ascending, from names alone."""
    if not folder.is_dir():
        return []
    return sorted(int(path.stem) for path in folder.iterdir() if path.suffix == ".json" and PARTIAL not in path.name)
