"""Stores out of stores: units that were made in several places become one store; a store of committed units alone.

Both copy objects and never compute: what is read is checked against its record while it is copied, the commit record of
a unit is written last, and the same call goes on where one was cut off. The stores that are read are not changed.
Scores that a probe wrote stay behind: it saw only the rows of its own store.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pipeline.digests import difference
from pipeline.errors import UserError
from pipeline.files import write_bytes
from pipeline.places import Place, reaching
from pipeline.progress import Progress
from pipeline.representation_store.records import write_commit
from pipeline.representation_store.store import RepresentationStore


def merge(sources: Sequence[Place], into: Place, progress: Progress) -> RepresentationStore:
    """Copy the committed units of stores of one run into one store.

    Args:
        sources: stores of the same digest, whose committed units differ.
        into: a new store, or one that an earlier call began; it may be none of ``sources``.
        progress: for a bar.

    Returns:
        The store, with the run record of the sources and all their units.

    Raises:
        UserError: digests differ (with the difference), units overlap (with their names), or an object is damaged.
    """
    if len(sources) < 2:
        raise UserError("merge: name two stores or more, e.g. stores=[a/store,b/store].")
    _refuse_itself("merge", sources, into)
    stores = [RepresentationStore.open(path) for path in sources]
    first = stores[0]
    for other in stores[1:]:
        if other.digest != first.digest:
            lines = "\n  ".join(difference(first.run, other.run))
            raise UserError(f"merge: {first.path} and {other.path} are of different runs:\n  {lines}")
    _refuse_overlap(stores)
    merged = RepresentationStore.create(into, first.layout, _run(first))
    bar = progress.bar("merge", sum(len(store.committed()) for store in stores), "units")
    there = set(merged.committed())
    for store in stores:
        for unit in store.committed():
            if unit not in there:
                _copy_unit(store, unit, merged, unit)
            bar.advance()
    bar.close()
    return RepresentationStore.open(into)


def compact(source: Place, into: Place, progress: Progress) -> RepresentationStore:
    """Copy the committed units of a store into one that has no others, numbered densely in the same order.

    For a store some of whose tars failed for good: what reads the whole collection can go on without them. Readers get
    the same rows in the same order. The layout names fewer units, so the digest is another one; ``compacted_from`` in
    the run record says which units of which run they were.

    Args:
        source: a store.
        into: a new store, or one that an earlier call began.
        progress: for a bar.

    Raises:
        UserError: nothing is committed, or an object is damaged.
    """
    _refuse_itself("compact", [source], into)
    store = RepresentationStore.open(source)
    units = store.committed()
    if not units:
        raise UserError(f"compact: no unit is committed in {source}.")
    layout = replace(store.layout, units=tuple(store.layout.units[unit] for unit in units))
    origin = {"run": store.digest, "units": units}
    made = RepresentationStore.create(into, layout, {**_run(store), "compacted_from": origin})
    bar = progress.bar("compact", len(units), "units")
    there = set(made.committed())
    for number, unit in enumerate(units):
        if number not in there:
            _copy_unit(store, unit, made, number)
        bar.advance()
    bar.close()
    return RepresentationStore.open(into)


def _copy_unit(source: RepresentationStore, unit: int, into: RepresentationStore, number: int) -> None:
    """Copy a unit's objects, checked, and last its commit record."""
    commit = source.commit(unit)
    for array, checksum in commit.checksums.items():
        if checksum is None:
            continue
        path = source.shard_path(array, unit)
        try:
            with reaching(path):
                data = path.read_bytes()
        except FileNotFoundError:
            data = b""
        if hashlib.sha256(data).hexdigest() != checksum:
            raise UserError(
                f"{path} is missing or damaged: unit {unit} ({commit.name}) was not copied. `submit verify stage=cache`"
                " where the store was made names all such units, and `submit stage=cache` there makes them again."
            )
        write_bytes(into.shard_path(array, number), data)
    write_commit(into.commits, replace(commit, unit=number, run=into.digest))


def _run(store: RepresentationStore) -> Mapping[str, Any]:
    return {key: value for key, value in store.run.items() if key != "layout"}


def _refuse_itself(verb: str, sources: Sequence[Place], into: Place) -> None:
    if str(into) in map(str, sources):
        raise UserError(f"{verb}: into={into} is one of the stores that are read. Take another folder.")


def _refuse_overlap(stores: Sequence[RepresentationStore]) -> None:
    owner: dict[int, RepresentationStore] = {}
    twice = []
    for store in stores:
        for unit in store.committed():
            if unit in owner:
                twice.append(f"unit {unit} ({store.layout.units[unit].name}): {owner[unit].path} and {store.path}")
            owner.setdefault(unit, store)
    if twice:
        shown = "\n  ".join([*twice[:10], *(["…"] if len(twice) > 10 else [])])
        raise UserError(
            f"merge: {len(twice)} units are committed in several stores:\n  {shown}\n"
            "Which to take is not for this command to say: remove their commit records (commits/<unit>.json) in all "
            "stores but one."
        )
