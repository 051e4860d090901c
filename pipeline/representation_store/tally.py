"""How much is in a store, counted without opening it: for those who ask often, while others write.

A unit is done when its commit record is there, and that is asked of the folder each time. What is small is read and
checked in full: all of a store of at most :data:`FEW` units, and of a larger one the records that are new since the
last time, if they are at most so many. Beyond that, records are only looked at (one that has not the form in which
records are written is checked too), and what they tell is remembered in ``telemetry/tally.json``, with the time and
size of each file. Where these differ it is asked again. ``submit verify`` reads everything.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypeAlias

from pipeline.digests import canonical_json
from pipeline.errors import UserError
from pipeline.files import write_bytes
from pipeline.many_files import file_names, file_stamps, read_files
from pipeline.places import Place, is_remote
from pipeline.representation_store.records import SUFFIX, parse_commit
from pipeline.run_record import RUN_COPY, RUN_RECORD, recall
from pipeline.sealed import DamagedError

FEW = 1000
TALLY = "telemetry/tally.json"
_COLUMNS = ("names", "stamps", "rows", "quarantined")

#: A record as :func:`~pipeline.representation_store.records.write_commit` writes it. What stands two spaces deep is a
#: key of the record itself, and what stands six deep one of a sample that was set aside: no string holds a line break.
_HEAD, _ROWS = b'{\n  "checksums": {', b'],\n  "rows": '
_TAIL = re.compile(rb'(\d+),\n  "run": "\w{64}",\n  "seal": "\w{64}",\n  "unit": (\d+)\n\}\n')
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


#: What one record tells: the stamp of its file, rows, and samples that are left out. A hundred thousand of them are
#: made at a time, and tuples are made quickest.
_Told: TypeAlias = tuple[str, int, int]


def tally(path: Place) -> Tally:
    """Count what is in the store at ``path``.

    Raises:
        UserError: the run record of a small store is damaged, or the place cannot be reached.
    """
    units = _units(path)
    if units is None:
        return Tally(units=None)
    told, damaged = _commits(path)
    _, rows, quarantined = zip(*told.values(), strict=True) if told else ((), (), ())
    failed = {**_failures(path, told.keys() | damaged.keys()), **damaged}
    return Tally(
        units=units,
        done=frozenset(name.removesuffix(SUFFIX) for name in told),
        rows=sum(rows),
        quarantined=sum(quarantined),
        failed={name.removesuffix(SUFFIX): failed[name] for name in sorted(failed)},
    )


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


def _commits(path: Place) -> tuple[dict[str, _Told], dict[str, str]]:
    """By the names of the records: what the sound ones tell, and what is wrong with the others."""
    folder, known = path / "commits", _remembered(path)
    stamps = file_stamps(folder, SUFFIX) if known or is_remote(folder) else {}
    names = list(stamps) or file_names(folder, SUFFIX)
    told = {name: known[name] for name in names if name in known and known[name][0] == stamps[name]}
    new = [name for name in names if name not in told]
    damaged: dict[str, str] = {}
    for content in read_files(folder, new):
        if content.data is None:
            continue  # withdrawn in this moment
        looked = _look(content.data, content.name) if len(new) > FEW else None
        try:
            rows, quarantined = looked or _check(content.data, folder / content.name)
        except DamagedError as error:
            damaged[content.name] = str(error)
        else:
            told[content.name] = (content.stamp or stamps[content.name], rows, quarantined)
    if len(new) > FEW:
        _remember(path, told)
    return told, damaged


def _look(data: bytes, name: str) -> tuple[int, int] | None:
    """Rows and quarantined samples of a record that has the form; None: it has not."""
    rows = data.rfind(_ROWS)
    tail = _TAIL.fullmatch(data, rows + len(_ROWS)) if rows > 0 and data.startswith(_HEAD) else None
    if tail is None or int(tail[2]) != int(name.removesuffix(SUFFIX)):
        return None
    none = data.endswith(_NONE, 0, rows)
    quarantined = 0 if none else data.count(_KEY)
    return (int(tail[1]), quarantined) if none or 0 < quarantined == data.count(_REASON) else None


def _check(data: bytes, path: Place) -> tuple[int, int]:
    """The same of any record, after all of it is checked."""
    commit = parse_commit(data, path)
    return commit.rows, len(commit.quarantined)


def _failures(path: Place, recorded: Collection[str]) -> dict[str, str]:
    """Why units failed, by the names of their records. One that was done since may have left its failure behind."""
    folder, reasons = path / "failures", {}
    for content in read_files(folder, [name for name in file_names(folder, SUFFIX) if name not in recorded]):
        if content.data is not None:
            reasons[content.name] = _reason(content.data, folder / content.name)
    return reasons


def _reason(data: bytes, path: Place) -> str:
    """These records have no checksum, since the next try writes them anew."""
    try:
        return str(json.loads(data)["reason"])
    except (ValueError, LookupError, TypeError):
        return f"{path} is damaged; the next try says the reason again"


def _remembered(path: Place) -> dict[str, _Told]:
    """What was remembered, by the names of the records; nothing where that is damaged."""
    with suppress(OSError, ValueError, LookupError, TypeError):
        plain = json.loads((path / TALLY).read_bytes())
        names, stamps, rows, quarantined = (plain[key] for key in _COLUMNS)
        if {*map(type, rows), *map(type, quarantined)} <= {int}:
            return dict(zip(names, zip(stamps, rows, quarantined, strict=True), strict=True))
    return {}


def _remember(path: Place, told: Mapping[str, _Told]) -> None:
    columns = dict(zip(_COLUMNS, (list(told), *zip(*told.values(), strict=True)), strict=True))
    with suppress(OSError, UserError):  # somebody else's store can be looked at, too
        write_bytes(path / TALLY, canonical_json(columns).encode())
