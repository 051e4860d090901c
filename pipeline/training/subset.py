"""A part of a store to train on: rows of some classes, of some units, or those that a file names."""

from __future__ import annotations

import difflib
import hashlib
import io
from codecs import BOM_UTF8
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from pipeline.class_lists import class_list
from pipeline.config import config
from pipeline.errors import UserError
from pipeline.files import read_bytes
from pipeline.places import Place
from pipeline.representation_store.selection import of_classes, of_keys, of_shots, of_units

if TYPE_CHECKING:
    from pipeline.representation_store import RepresentationStore

Mask = NDArray[np.bool_]
SHOWN = 3  # names in a message


@config
class SubsetConfig:
    """The rows that are trained on: those to which everything that is set here applies."""

    later: ClassVar[frozenset[str]] = frozenset({"shots", "shots_seed"})

    only_classes: str | tuple[int | str, ...] | None = None  # names or indices; or a class list, as dataset.class_list
    only_units: tuple[int | str, ...] | None = None  # indices, or patterns of the tars' names (00*.tar)
    only_keys: Place | None = None  # a file of keys: text, one a line, or .npy
    only_rows: Place | None = None  # a file of rows of the store, counted from 0: text, one a line, or .npy (or bools)
    # few-shot: of the rows left by what is set above, so many of each class, chosen by a hash of their keys; the
    # evaluation leaves them out
    shots: Annotated[int, Field(ge=1)] | None = None
    shots_seed: Annotated[int, Field(ge=0, lt=1 << 31)] = 0  # another one chooses other rows


def has_parts(subset: SubsetConfig) -> bool:
    """Whether a part is named of which shots are taken."""
    named = (subset.only_classes, subset.only_units, subset.only_keys, subset.only_rows)
    return any(one is not None for one in named)


def content(subset: SubsetConfig) -> Mapping[str, str]:
    """Hex SHA-256 of the files it names, which decide the rows as much as their names do not.

    Raises:
        UserError: a file is not there.
    """
    files = {"only_keys": subset.only_keys, "only_rows": subset.only_rows}
    return {name: hashlib.sha256(_read(place, name)).hexdigest() for name, place in files.items() if place is not None}


def check_names(store: RepresentationStore, subset: SubsetConfig) -> None:
    """Refuse classes and units that the store has not, without looking at rows; errors are those of :func:`limit`."""
    if subset.only_classes is not None:
        _classes(store, subset.only_classes)
    if subset.only_units is not None:
        _units(store, subset.only_units)


def limit(store: RepresentationStore, subset: SubsetConfig) -> RepresentationStore:
    """The store, of which batches hold the rows of the subset alone; columns are read only for what is set.

    Raises:
        UserError: a class, unit, key or row that the store has not; a file that is not there or is no such list; no row
            is left.
    """
    chosen: dict[str, Mask] = {}
    if subset.only_classes is not None:
        chosen["only_classes"] = of_classes(store, _classes(store, subset.only_classes))
    if subset.only_units is not None:
        chosen["only_units"] = of_units(store, _units(store, subset.only_units))
    if subset.only_keys is not None:
        chosen["only_keys"] = _keys(store, subset.only_keys)
    if subset.only_rows is not None:
        chosen["only_rows"] = _rows(store, subset.only_rows)
    if not chosen and subset.shots is None:
        return store
    both = np.logical_and.reduce(list(chosen.values())) if chosen else None
    if subset.shots is not None:
        chosen["shots"] = of_shots(store, subset.shots, subset.shots_seed, among_N=both)
        both = chosen["shots"]
    assert both is not None
    if not both.any():
        each = ", ".join(f"train_head.{name} {int(mask.sum()):,}" for name, mask in chosen.items())
        raise UserError(
            f"{store.path}: the subset to train on has no row. Of {len(both):,} rows, each key alone leaves: {each}."
        )
    return store.limited(both)


def keys_left_out(
    store: RepresentationStore, subset: SubsetConfig, without_shots: int | None = None
) -> frozenset[bytes]:
    """Keys that an evaluation on the same dataset leaves out: with ``shots``, those that are trained on.

    Args:
        store: that is trained on.
        subset: its rows that are.
        without_shots: leave out the rows of so many shots instead, at least ``subset.shots``: more shots contain fewer,
            so what is left is the same for every number up to this one, and holds no row that is trained on.

    Raises:
        UserError: as :func:`limit`.
    """
    if subset.shots is None:
        return frozenset()
    shots = subset.shots if without_shots is None else without_shots
    assert shots >= subset.shots, "rows that are trained on would be a part of the test"
    taken_N = limit(store, replace(subset, shots=shots)).takes_part
    assert taken_N is not None
    return frozenset(key for start, key_R in store.column("key") for key in key_R[taken_N[start : start + len(key_R)]])


def keys_trained_on(store: RepresentationStore, subset: SubsetConfig, keys: NDArray[np.bytes_]) -> frozenset[bytes]:
    """Of some keys, those of rows that are trained on; the keys of the store are read unit by unit and not held.

    Raises:
        UserError: as :func:`limit`.
    """
    taken_N = limit(store, subset).takes_part
    found: set[bytes] = set()
    for start, key_R in store.column("key"):
        mine_R = key_R if taken_N is None else key_R[taken_N[start : start + len(key_R)]]
        found.update(mine_R[np.isin(mine_R, keys)].tolist())
    return frozenset(found)


def _classes(store: RepresentationStore, choice: str | Sequence[int | str]) -> list[int]:
    names = store.class_names
    if isinstance(choice, str):
        choice = class_list(choice, "train_head.only_classes")
    index = {name: place for place, name in enumerate(names)}
    unknown = [one for one in choice if one not in index and not (isinstance(one, int) and 0 <= one < len(names))]
    if unknown:
        raise UserError(
            f"train_head.only_classes: {_listed(unknown)}: {_no(unknown, 'class')} of {store.path}, whose "
            f"{len(names):,} classes are {_listed(names)} (0 to {len(names) - 1}).{_nearest(unknown[0], names)}"
        )
    return [one if isinstance(one, int) else index[one] for one in choice]


def _units(store: RepresentationStore, choice: Sequence[int | str]) -> list[int]:
    names = {unit: store.layout.units[unit].name for unit in store.counts()}
    found: list[int] = []
    for one in choice:
        if isinstance(one, int):
            fits = [one] if one in names else []
        else:
            fits = [unit for unit, name in names.items() if fnmatchcase(name, one)]
        if not fits:
            raise UserError(
                f"train_head.only_units: {one!r}: {store.path} has no such unit. Its {len(names):,} committed units "
                f"are {_listed(list(names.values()))}.{_nearest(one, list(names.values()))}"
            )
        found += fits
    return found


def _keys(store: RepresentationStore, place: Place) -> Mask:
    named = _list(place, "only_keys")
    if named.dtype.kind == "U":
        named = np.strings.encode(named, "utf-8")
    if named.dtype.kind != "S":
        raise UserError(
            f"train_head.only_keys: {place} holds {named.dtype}, not keys. Rows go to train_head.only_rows."
        )
    mask_N, missing = of_keys(store, named)
    if len(missing):
        left_out = {item.key.encode() for unit in store.counts() for item in store.commit(unit).quarantined}
        missing = np.array([key for key in missing.tolist() if key not in left_out], dtype=missing.dtype)
    if len(missing):
        raise UserError(
            f"train_head.only_keys: {len(missing):,} of the {len(np.unique(named)):,} keys of {place} are not in "
            f"{store.path}, nor were they set aside when it was made: {_listed([key.decode() for key in missing])}. "
            "A key is the name of the image in its tar without the extension, with its folders."
        )
    return mask_N


def _rows(store: RepresentationStore, place: Place) -> Mask:
    named, count = _list(place, "only_rows"), sum(store.counts().values())
    if named.dtype.kind == "b":
        if named.shape != (count,):
            raise UserError(f"train_head.only_rows: {place} has {named.shape} bools, but {store.path} {count:,} rows.")
        return named
    if named.dtype.kind in "SU":
        try:
            named = named.astype(np.int64)
        except ValueError as error:
            raise UserError(
                f"train_head.only_rows: {place}: {error}: not a row number. Keys go to train_head.only_keys."
            ) from None
    if named.dtype.kind not in "iu":
        raise UserError(f"train_head.only_rows: {place} holds {named.dtype}, not row numbers.")
    outside = named[(named < 0) | (named >= count)]
    if len(outside):
        raise UserError(
            f"train_head.only_rows: {place}: {len(outside):,} of {len(named):,} numbers are no rows of {store.path}, "
            f"which has the rows 0 to {count - 1}: {_listed(outside.tolist())}."
        )
    mask_N = np.zeros(count, dtype=bool)
    mask_N[named] = True
    return mask_N


def _list(place: Place, name: str) -> NDArray[Any]:
    """One-dimensional: of bytes, as a text file has them, or what an .npy file holds."""
    data = _read(place, name)
    if place.suffix == ".npy":
        try:
            found = np.load(io.BytesIO(data), allow_pickle=False)
        except (ValueError, EOFError, OSError) as error:
            raise UserError(f"train_head.{name}: {place} is no .npy file of plain values ({error}).") from None
        if found.ndim != 1:
            raise UserError(f"train_head.{name}: {place} has the shape {found.shape}; one dimension is wanted.")
        return np.asarray(found)
    lines = [line for line in (line.strip() for line in data.removeprefix(BOM_UTF8).split(b"\n")) if line]
    if not lines:
        raise UserError(f"train_head.{name}: {place} is empty.")
    return np.array(lines)


def _read(place: Place, name: str) -> bytes:
    try:
        return read_bytes(place)
    except (FileNotFoundError, IsADirectoryError):
        raise UserError(f"train_head.{name}: no file at {place}.") from None


def _listed(values: Sequence[Any]) -> str:
    return ", ".join(map(repr, values[:SHOWN])) + (", …" if len(values) > SHOWN else "")


def _no(values: Sequence[Any], noun: str) -> str:
    return f"no {noun}" if len(values) == 1 else f"{len(values):,} that are no {noun}"


def _nearest(value: int | str, valid: Sequence[str]) -> str:
    near = difflib.get_close_matches(str(value), valid, n=1)
    return f" Did you mean '{near[0]}'?" if near else ""
