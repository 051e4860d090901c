"""Commit records: a unit counts once its record stands. Facts only, so that every run writes the same bytes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from pipeline.faults import Quarantined
from pipeline.files import PARTIAL
from pipeline.places import Place, is_remote
from pipeline.sealed import DamagedError, read_sealed, write_sealed

READERS = 16  # records that are asked for at a time


@dataclass(frozen=True, kw_only=True)
class Commit:
    """What is true of a finished unit.

    Attributes:
        unit: its index.
        name: the input tar's name.
        run: digest of the run record that the unit was made under.
        rows: rows stored, the first ones of the unit's region.
        quarantined: samples left out, in tar order.
        checksums: array → hex SHA-256 of its shard object; None where nothing needed storing.
    """

    unit: int
    name: str
    run: str
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
        "run": commit.run,
        "rows": commit.rows,
        "quarantined": [{"key": item.key, "reason": item.reason} for item in commit.quarantined],
        "checksums": dict(commit.checksums),
    }
    write_sealed(record_path(folder, commit.unit), plain)


def read_commit(path: Place) -> Commit:
    """Read a record.

    Raises:
        pipeline.sealed.DamagedError: the file is damaged; `submit verify` removes it, which makes the unit run again.
    """
    plain = read_sealed(path)
    return Commit(**{**plain, "quarantined": tuple(Quarantined(**item) for item in plain["quarantined"])})


def read_commits(folder: Place, units: Iterable[int]) -> Iterator[tuple[int, Commit | DamagedError]]:
    """The records of units, or what is wrong with them; an object store is asked for many at a time."""

    def read(unit: int) -> tuple[int, Commit | DamagedError]:
        try:
            return unit, read_commit(record_path(folder, unit))
        except DamagedError as error:
            return unit, error

    if not is_remote(folder):
        yield from map(read, units)
        return
    with ThreadPoolExecutor(READERS) as pool:
        yield from pool.map(read, units)


def committed_units(folder: Place) -> list[int]:
    """The units that have a record, ascending, from names alone."""
    if not folder.is_dir():
        return []
    return sorted(int(path.stem) for path in folder.iterdir() if path.suffix == ".json" and PARTIAL not in path.name)
