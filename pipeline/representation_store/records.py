"""Commit records: a unit counts once its record stands. Facts only, so that every run writes the same bytes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pipeline.errors import DamagedError
from pipeline.faults import Quarantined
from pipeline.many_files import file_names, read_files
from pipeline.places import Place
from pipeline.sealed import read_sealed, unseal, write_sealed

SUFFIX = ".json"
TALLY = "telemetry/tally.json"  # in a store: what :mod:`pipeline.representation_store.tally` remembers of its records


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
    return folder / f"{unit:06d}{SUFFIX}"


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


def withdraw_commit(store: Place, unit: int) -> None:
    """Take the record of a unit back, so that it is done again."""
    record_path(store / "commits", unit).unlink(missing_ok=True)
    (store / TALLY).unlink(missing_ok=True)  # the new record may be given the inode of the old one


def read_commit(path: Place) -> Commit:
    """Read a record.

    Raises:
        pipeline.sealed.DamagedError: the file is damaged; `submit verify` removes it, which makes the unit run again.
    """
    return _commit(read_sealed(path))


def parse_commit(data: bytes, path: Place) -> Commit:
    """A record of whose file the bytes were read already; errors as of :func:`read_commit`."""
    return _commit(unseal(data, path))


def _commit(plain: Mapping[str, Any]) -> Commit:
    return Commit(**{**plain, "quarantined": tuple(Quarantined(**item) for item in plain["quarantined"])})


def read_commits(folder: Place, units: Iterable[int]) -> Iterator[tuple[int, Commit | DamagedError]]:
    """The records of units, or what is wrong with them; many are asked for at a time.

    Raises:
        FileNotFoundError: one of them has no record.
    """
    units = list(units)
    found = read_files(folder, [record_path(folder, unit).name for unit in units])
    for unit, content in zip(units, found, strict=True):
        path = record_path(folder, unit)
        if content.data is None:
            raise FileNotFoundError(path)
        try:
            yield unit, parse_commit(content.data, path)
        except DamagedError as error:
            yield unit, error


def committed_units(folder: Place) -> list[int]:
    """The units that have a record, ascending, from names alone."""
    return sorted(int(name.removesuffix(SUFFIX)) for name in file_names(folder, SUFFIX))
