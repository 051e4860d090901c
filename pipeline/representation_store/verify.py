"""Find what is wrong with a store: missing or changed objects, broken chunks, values that cannot be.

Every object is compared with a record of it: shard objects with the checksums in their unit's commit record, records
with their own seal, ``run.json`` with its copy, ``zarr.json`` files with what the layout makes. So one flipped bit is
found wherever it is. ``telemetry/`` and ``failures/`` say how the work went; they are no part of the content and have
no checksums. What a probe wrote has its own records: :func:`score_problems`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from pipeline.errors import DamagedError
from pipeline.files import sha256_file
from pipeline.places import Place
from pipeline.progress import Progress
from pipeline.representation_store.arrays import metadata
from pipeline.representation_store.records import committed_units, record_path, withdraw_commit
from pipeline.representation_store.store import RepresentationStore
from pipeline.run_record import RUN_COPY, RUN_RECORD, put_aside
from pipeline.sealed import read_sealed


@dataclass(frozen=True, kw_only=True)
class Problem:
    """One thing that is wrong.

    Attributes:
        what: for a person.
        unit: what has to be done again; None when it is no unit.
        path: the object that has to be made again; None when it is a unit.
    """

    what: str
    unit: int | None = None
    path: Place | None = None

    def __str__(self) -> str:
        return self.what if self.unit is None else f"unit {self.unit:06d}: {self.what}"


def verify(path: Place, progress: Progress) -> list[Problem]:
    """Check every object of the store at ``path``; changes nothing. See :func:`discard`."""
    record, problems = _run_record(path)
    if record is None:
        return problems
    store = RepresentationStore.of_record(path, record)
    problems += _metadata_problems(store)
    readable = not any(problem.path and problem.path.name == "zarr.json" for problem in problems)
    bar = progress.bar("verify", len(store.committed()), "units")
    for unit in store.committed():
        problems += [Problem(unit=unit, what=what) for what in _unit_problems(store, unit, readable)]
        bar.advance()
    bar.close()
    return problems


def discard(path: Place, problems: Iterable[Problem]) -> None:
    """Take away what is wrong, so that going on with the store makes it again; nothing that is whole is lost.

    Commit records of bad units are removed and bad ``zarr.json`` files too. So is a bad ``run.json`` or copy of it; if
    both are bad, they are kept as ``<name>.damaged``, and ``auto`` in the config is resolved anew.
    """
    problems = list(problems)
    twins = {path / RUN_RECORD, path / RUN_COPY}
    lost = twins <= {problem.path for problem in problems}
    for problem in problems:
        if problem.unit is not None:
            withdraw_commit(path, problem.unit)
        elif problem.path in twins and lost and problem.path.exists():
            put_aside(problem.path)
        elif problem.path is not None:
            problem.path.unlink(missing_ok=True)


def score_problems(store: RepresentationStore, records: Place) -> Iterator[Problem]:
    """What is wrong with the scores that a probe wrote into a store.

    Args:
        store: with the scores.
        records: folder of the probe's records of them, one a unit, as the probe stage writes them.
    """
    for unit in committed_units(records):
        path = record_path(records, unit)
        try:
            checksums = read_sealed(path)["checksums"]
        except DamagedError as error:
            yield Problem(path=path, what=str(error))
            continue
        for what in _object_problems(store, unit, checksums):
            yield Problem(path=path, what=f"unit {unit:06d}: {what}")


def _run_record(path: Place) -> tuple[dict[str, Any] | None, list[Problem]]:
    """The record, from whichever of the two files is whole."""
    whole: dict[str, dict[str, Any]] = {}
    problems = []
    for name in (RUN_RECORD, RUN_COPY):
        try:
            whole[name] = read_sealed(path / name)
        except FileNotFoundError:
            problems.append(Problem(path=path / name, what=f"{path / name} is missing"))
        except DamagedError:
            problems.append(Problem(path=path / name, what=f"{path / name} is damaged"))
    if len(whole) == 2 and whole[RUN_RECORD] != whole[RUN_COPY]:
        problems.append(Problem(path=path / RUN_COPY, what=f"{path / RUN_COPY} is not a copy of {RUN_RECORD}"))
    return whole.get(RUN_RECORD, whole.get(RUN_COPY)), problems


def _metadata_problems(store: RepresentationStore) -> list[Problem]:
    problems = []
    for name, expected in metadata(store.layout).items():
        path = store.path / name
        if not path.exists():
            problems.append(Problem(path=path, what=f"{path} is missing"))
        elif path.read_bytes() != expected:
            problems.append(Problem(path=path, what=f"{path} is not what the layout in {RUN_RECORD} makes"))
    return problems


def _unit_problems(store: RepresentationStore, unit: int, readable: bool) -> Iterator[str]:
    if unit >= len(store.layout.units):
        yield f"there is no such unit: the layout has {len(store.layout.units)}"
        return
    name = store.layout.units[unit].name
    try:
        commit = store.commit(unit)
    except DamagedError as error:
        yield str(error)
        return
    if commit.unit != unit or commit.name != name:
        yield f"the commit record speaks of unit {commit.unit} ({commit.name}), not of {name}"
    if commit.run != store.digest:
        yield "it was committed under another run record"
    promised = store.layout.units[unit].samples
    if promised is not None and promised != commit.rows + len(commit.quarantined):
        yield (
            f"{commit.rows} rows and {len(commit.quarantined)} quarantined, "
            f"but the manifest promises {promised} samples"
        )
    broken = list(_object_problems(store, unit, commit.checksums))
    yield from broken
    if readable and not broken and not np.isfinite(store.representation(unit)).all():
        yield "array 'embedding': a value is not finite"


def _object_problems(store: RepresentationStore, unit: int, checksums: Mapping[str, str | None]) -> Iterator[str]:
    for array, checksum in checksums.items():
        path = store.shard_path(array, unit)
        if checksum is None:
            if path.exists():
                yield f"array '{array}': {path} is there, though nothing was to be stored"
        elif not path.exists():
            yield f"array '{array}': its object {path} is missing"
        elif sha256_file(path) != checksum:
            yield f"array '{array}': the bytes of {path} are not those that were committed"
