"""How much is in a store, counted without opening it: for those who ask often, while others write.

A unit is done when its commit record is there, and that is asked of the folder each time. What is small is read and
checked in full: all of a store of at most :data:`FEW` units, and of a larger one the records that are new since the
last time, if they are at most so many. Beyond that, records are only looked at (one that has not the form in which
records are written is checked too), and what they tell is remembered in ``telemetry/tally.json``, with the inode of
each file (in an object store its tag): a record is written by putting a new file in its place, so where that is another
one it is looked at again, and a listing is all that the others cost. ``submit verify`` reads everything.

So that nobody who asks is the first to look at a hundred thousand records, whoever commits one of every :data:`EVERY`
units counts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from pipeline.errors import DamagedError, UserError
from pipeline.files import write_bytes
from pipeline.many_files import file_names, file_stamps, read_files
from pipeline.places import Place
from pipeline.representation_store.records import SUFFIX, TALLY, parse_commit
from pipeline.run_record import RUN_COPY, RUN_RECORD, recall

FEW = 1000
EVERY = 2 * FEW
_COLUMNS = ("names", "stamps", "rows")

#: A record as :func:`~pipeline.representation_store.records.write_commit` writes it. What stands two spaces deep is a
#: key of the record itself, and what stands six deep one of a sample that was set aside: no string holds a line break.
_HEAD, _ROWS = b'{\n  "checksums": {', b'],\n  "rows": '
_TAIL = re.compile(rb'(\d+),\n  "run": ".{64}",\n  "seal": ".{64}",\n  "unit": (\d+)\n\}\n')
_NONE = b'\n  "quarantined": ['  # before _ROWS, where nothing was set aside
_KEY, _REASON = b'\n      "key": ', b'\n      "reason": '


@dataclass(frozen=True, kw_only=True)
class Tally:
    """How much is in a store.

    Attributes:
        units: that it will have; None: there is no store.
        done: units with a sound record, by the names of their records.
        rows: of those, together.
        quarantined: samples that they leave out, together.
        failed: unit → why it is not done: it failed, or its record is damaged.
    """

    units: int | None
    done: frozenset[str] = frozenset()
    rows: int = 0
    quarantined: int = 0
    failed: Mapping[str, str] = field(default_factory=dict)


class _Told(NamedTuple):
    """What records tell, by their names. There may be a hundred thousand, so they are no objects.

    Attributes:
        stamps: which file that was.
        rows: of each.
        quarantined: samples that are left out, of those that leave some out.
    """

    stamps: dict[str, int | str]
    rows: dict[str, int]
    quarantined: dict[str, int]


def tally(path: Place) -> Tally:
    """Count what is in the store at ``path``.

    Raises:
        UserError: the run record of a small store is damaged, or the place cannot be reached.
    """
    units = _units(path)
    if units is None:
        return Tally(units=None)
    told, damaged = _commits(path)
    failed = {**_failures(path, told.rows.keys() | damaged.keys()), **damaged}
    return Tally(
        units=units,
        done=frozenset(name.removesuffix(SUFFIX) for name in told.rows),
        rows=sum(told.rows.values()),
        quarantined=sum(told.quarantined.values()),
        failed={name.removesuffix(SUFFIX): failed[name] for name in sorted(failed)},
    )


def tally_now_and_then(path: Place, unit: int) -> None:
    """``unit`` was committed: count what is in its store, if it is its turn."""
    if (unit + 1) % EVERY == 0:
        with suppress(UserError):  # the unit is done all the same
            tally(path)


def _units(path: Place) -> int | None:
    """How many units the store has: as the metadata of an array says, and the run record where that is small."""
    if not any((path / name).exists() for name in (RUN_RECORD, RUN_COPY)):
        return None
    with suppress(FileNotFoundError, ValueError, LookupError, TypeError):
        units = int(json.loads((path / "label" / "zarr.json").read_bytes())["shape"][0])
        if units > FEW:
            return units
    record = recall(path)
    return None if record is None else len(record["meaning"]["layout"]["units"])


def _commits(path: Place) -> tuple[_Told, dict[str, str]]:
    """What the sound records tell, and what is wrong with the others, by their names."""
    folder, told = path / "commits", _remembered(path)
    stamps = file_stamps(folder, SUFFIX)
    new = [name for name, stamp in stamps.items() if told.stamps.get(name) != stamp]
    for name in [*new, *(told.rows.keys() - stamps.keys())]:
        told.rows.pop(name, None)
        told.quarantined.pop(name, None)
    damaged: dict[str, str] = {}
    for name, data in read_files(folder, new):
        if data is None:
            continue  # withdrawn in this moment
        looked = _look(data, name) if len(new) > FEW else None
        try:
            rows, quarantined = looked or _check(data, folder / name)
        except DamagedError as error:
            damaged[name] = str(error)
            continue
        told.rows[name] = rows
        if quarantined:
            told.quarantined[name] = quarantined
    if len(new) > FEW:
        _remember(path, told._replace(stamps=stamps))
    return told, damaged


def _look(data: bytes, name: str) -> tuple[int, int] | None:
    """Rows and quarantined samples of a record that has the form; None: it has not."""
    at = data.rfind(_ROWS)
    tail = _TAIL.fullmatch(data, at + len(_ROWS)) if at > 0 and data.startswith(_HEAD) else None
    if tail is None:
        return None
    rows, unit = map(int, tail.groups())
    if unit != int(name.removesuffix(SUFFIX)):
        return None
    if data.endswith(_NONE, 0, at):
        return rows, 0
    quarantined = data.count(_KEY)
    return (rows, quarantined) if 0 < quarantined == data.count(_REASON) else None


def _check(data: bytes, path: Place) -> tuple[int, int]:
    """The same of any record, after all of it is checked."""
    commit = parse_commit(data, path)
    return commit.rows, len(commit.quarantined)


def _failures(path: Place, recorded: Collection[str]) -> dict[str, str]:
    """Why units failed, by the names of their records. One that was done since may have left its failure behind."""
    folder, reasons = path / "failures", {}
    for name, data in read_files(folder, [name for name in file_names(folder, SUFFIX) if name not in recorded]):
        if data is not None:
            reasons[name] = _reason(data, folder / name)
    return reasons


def _reason(data: bytes, path: Place) -> str:
    """These records have no checksum, since the next try writes them anew."""
    try:
        return str(json.loads(data)["reason"])
    except (ValueError, LookupError, TypeError):
        return f"{path} is damaged; the next try says the reason again"


def _remembered(path: Place) -> _Told:
    """What was remembered; nothing where that is damaged."""
    with suppress(OSError, ValueError, LookupError, TypeError, AttributeError):
        plain = json.loads((path / TALLY).read_bytes())
        names, stamps, rows = (plain[key] for key in _COLUMNS)
        quarantined = dict(plain["quarantined"].items())
        if {*map(type, rows), *map(type, quarantined.values())} <= {int} and quarantined.keys() <= {*names}:
            return _Told(dict(zip(names, stamps, strict=True)), dict(zip(names, rows, strict=True)), quarantined)
    return _Told({}, {}, {})


def _remember(path: Place, told: _Told) -> None:
    names = list(told.rows)
    stamps = [told.stamps[name] for name in names]
    plain = dict(zip(_COLUMNS, (names, stamps, list(told.rows.values())), strict=True))
    with suppress(OSError, UserError):  # somebody else's store can be looked at, too
        write_bytes(path / TALLY, json.dumps({**plain, "quarantined": told.quarantined}).encode())
