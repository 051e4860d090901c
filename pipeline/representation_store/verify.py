"""Find what is wrong with a store: missing or changed objects, broken chunks, values that cannot be."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from pipeline.errors import UserError
from pipeline.files import sha256_file
from pipeline.progress import Progress
from pipeline.representation_store.store import RepresentationStore


@dataclass(frozen=True, kw_only=True)
class Problem:
    """One thing that is wrong; ``unit`` is what has to be done again."""

    unit: int
    what: str


def verify(store: RepresentationStore, progress: Progress) -> list[Problem]:
    """Check every committed unit of ``store``; reads every byte once."""
    bar = progress.bar("verify", len(store.committed()), "units")
    problems: list[Problem] = []
    for unit in store.committed():
        problems += [Problem(unit=unit, what=what) for what in _unit_problems(store, unit)]
        bar.advance()
    bar.close()
    return problems


def _unit_problems(store: RepresentationStore, unit: int) -> Iterator[str]:
    name = store.layout.units[unit].name
    try:
        commit = store.commit(unit)
    except UserError as error:
        yield str(error)
        return
    if commit.unit != unit or commit.name != name:
        yield f"the commit record speaks of unit {commit.unit} ({commit.name}), not of {name}"
    promised = store.layout.units[unit].samples
    if promised is not None and promised != commit.rows + len(commit.quarantined):
        yield (
            f"{commit.rows} rows and {len(commit.quarantined)} quarantined, "
            f"but the manifest promises {promised} samples"
        )
    broken = False
    for array, checksum in commit.checksums.items():
        path = store.shard_path(array, unit)
        if checksum is None:
            continue
        if not path.exists():
            broken = True
            yield f"array '{array}': its object {path} is missing"
        elif sha256_file(path) != checksum:
            broken = True
            yield f"array '{array}': the bytes of {path} are not those that were committed"
    if not broken and not np.isfinite(store.representation(unit)).all():
        yield "array 'embedding': a value is not finite"
