"""Strict reading of one WebDataset tar: every member is a part of a sample or a stated fault, or the tar is broken.

Which members make a sample is said in ``grouping.py``. Readers made for streaming end quietly at the first byte they do
not understand; a tar cut by a full disk or a lost connection then looks like a shorter one. Here the headers are walked
first, to the end-of-archive blocks (``archive.py``), and only a whole tar gives samples. ``docs/inputs.md`` lists what
happens to each fault.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from pipeline.errors import OF_THE_MACHINE, UserError
from pipeline.faults import BadLabel, Quarantined
from pipeline.fetching import local_copy
from pipeline.files import sha256_file
from pipeline.images.archive import BrokenTar, members, read_member
from pipeline.images.grouping import Group, grouped
from pipeline.places import Place
from pipeline.stale import SteadyFile

__all__ = [
    "BrokenTar",
    "Quarantined",
    "TarIndex",
    "TarSample",
    "index_tar",
    "label_of",
    "read_tar",
]


@dataclass(frozen=True, kw_only=True)
class TarSample:
    """One image with its label fields as they lie in the tar.

    Attributes:
        key: see ``grouping.py``; folders included.
        data: the encoded image.
        extension: of the image member, in lower case.
        fields: ``cls``, ``json`` and ``txt`` members by extension; other members are not read.
    """

    key: str
    data: bytes
    extension: str
    fields: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class TarIndex:
    """What the headers alone say: samples, how many of them reading will quarantine, bytes of the longest key (UTF-8)
    and of the file."""

    samples: int
    faulty: int
    longest_key: int
    bytes: int


@dataclass(frozen=True, kw_only=True)
class Room:
    """What a tar may hold at most: samples, and bytes of a key (UTF-8)."""

    samples: int
    key_bytes: int


@dataclass(frozen=True, kw_only=True)
class Known:
    """What somebody found in a tar before, from its headers or when it was packed; None = not to be compared."""

    samples: int | None = None
    bytes: int | None = None
    sha256: str | None = None


def read_tar(path: Place, room: Room | None = None, known: Known | None = None) -> Iterator[TarSample | Quarantined]:
    """The samples of a tar in order, each either whole or with the reason why it cannot be used.

    The headers are read to the end of the archive before the first sample comes, so a broken tar gives none. A remote
    tar is fetched whole first.

    Args:
        path: the tar.
        room: refuse a tar with more, from its headers.
        known: refuse another tar in the place of this one, from its headers.

    Raises:
        BrokenTar: the tar is not whole. An archive without members is whole.
        UserError: there is no such tar, it cannot be fetched, it has more than there is room for, or it is another.
    """
    with local_copy(path) as local, _readable(path):
        try:
            groups = grouped(members(local))
            _check_room(path, groups, room)
            if known is not None:
                _check_known(path, Known(samples=len(groups), bytes=local.stat().st_size), known)
                if known.sha256 is not None and sha256_file(local) != known.sha256:
                    raise UserError(
                        f"{path}: not the tar that the manifest describes, its sha256 is another. Bring that one back, "
                        "or have it packed again: submit verify stage=pack, then submit stage=pack."
                    )
            yield from _samples(local, groups)
        except BrokenTar as error:
            raise BrokenTar(str(error).replace(str(local), str(path))) from None


def _check_room(path: Place, groups: Sequence[Group | Quarantined], room: Room | None) -> None:
    whole = [group for group in groups if isinstance(group, Group)]
    if room is None or not whole:
        return
    longest = max((group.key for group in whole), key=lambda key: len(key.encode()))
    if len(whole) > room.samples:
        raise UserError(
            f"{path}: {len(whole)} samples, more than dataset.max_rows_per_unit={room.samples} has room for. "
            "Raise it: that begins another store."
        )
    if len(longest.encode()) > room.key_bytes:
        raise UserError(
            f"{path}: the key '{longest}' is longer than dataset.max_key_bytes={room.key_bytes}. "
            "Raise it: that begins another store."
        )


@contextmanager
def _readable(path: Place) -> Iterator[None]:
    """A tar that the system does not give is one that cannot be used, like a broken one: others are not concerned."""
    try:
        yield
    except OSError as error:
        if error.errno in OF_THE_MACHINE:
            raise
        raise UserError(
            f"{path}: cannot be read ({error.strerror}). Copy this tar again, or give the right to read it; then the "
            "same command goes on."
        ) from None


def _check_known(path: Place, found: Known, known: Known) -> None:
    if known.samples in (None, found.samples) and known.bytes in (None, found.bytes):
        return
    raise UserError(
        f"{path}: another tar lies in its place: {found.samples} samples in {found.bytes:,} bytes, where there were "
        f"{known.samples} in {known.bytes or 0:,} when it was packed, or when its headers were read. Bring the first "
        "one back and give the same command."
    )


def _samples(path: Path, groups: Sequence[Group | Quarantined]) -> Iterator[TarSample | Quarantined]:
    with SteadyFile(path) as file:
        for group in groups:
            if isinstance(group, Quarantined):
                yield group
                continue
            wanted = sorted({"": group.image, **group.labels}.items(), key=lambda part: part[1].start)
            data = {name: read_member(file, member) for name, member in wanted}  # one way through the file
            yield TarSample(key=group.key, data=data.pop(""), extension=group.extension, fields=data)


def index_tar(path: Place) -> TarIndex:
    """Count the samples from the headers alone, those included that reading will quarantine.

    Raises:
        BrokenTar: the tar is not whole.
        UserError: there is no such tar, or it cannot be fetched.
    """
    with local_copy(path) as local, _readable(path):
        groups, size = grouped(members(local)), local.stat().st_size
    whole = [group for group in groups if isinstance(group, Group)]
    longest = max((len(group.key.encode()) for group in whole), default=0)
    faulty = len(groups) - len(whole)
    return TarIndex(samples=len(groups), faulty=faulty, longest_key=longest, bytes=size)


# -- labels


def label_of(
    sample: TarSample, labels: Mapping[str, int], *, absent: Literal["refused", "unlabelled"] = "refused"
) -> int:
    """The label of a sample, from ``cls`` (a decimal index), else ``json`` (``label`` or ``cls``: an index or a class
    name; ``class``: a class name; null: unlabelled), else ``txt`` (a class name).

    Args:
        sample: the sample.
        labels: class name → label, from 0; asked for each sample, so no list that would be searched.
        absent: what a sample without a label is: a fault, or unlabelled (-1).

    Raises:
        BadLabel: missing, not a whole number, negative, out of range, or no class of that name.
    """
    if "cls" in sample.fields:
        return _index(_text(sample.fields["cls"], "cls"), "cls", len(labels))
    if "json" in sample.fields:
        record = _record(sample.fields["json"])
        for name in ("label", "cls", "class"):
            value = record.get(name)
            if isinstance(value, str):
                return _index_of_name(value, f"json {name}", labels)
            if value is not None:
                return _index(json.dumps(value), f"json {name}", len(labels))
        if not {"label", "cls", "class"}.isdisjoint(record):
            return -1  # null: said to be unlabelled, as packing does
    if "txt" in sample.fields:
        return _index_of_name(_text(sample.fields["txt"], "txt"), "txt", labels)
    if absent == "refused":
        raise BadLabel("label missing: no cls, no label in json, no txt")
    return -1


def _text(data: bytes, where: str) -> str:
    try:
        return data.decode("utf-8").strip()
    except UnicodeDecodeError:
        raise BadLabel(f"{where} is not UTF-8 text") from None


def _record(data: bytes) -> Mapping[str, object]:
    try:
        record = json.loads(data)
    except (ValueError, RecursionError):
        raise BadLabel("json cannot be read") from None
    if not isinstance(record, dict):
        raise BadLabel("json is not an object")
    return record


def _index(text: str, where: str, classes: int) -> int:
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 18):
        raise BadLabel(f"{where} says '{text[:40]}', which is not a whole number")
    label = int(text)
    if not 0 <= label < classes:
        raise BadLabel(f"{where} says {label}, but labels run from 0 to {classes - 1}")
    return label


def _index_of_name(name: str, where: str, labels: Mapping[str, int]) -> int:
    try:
        return labels[name]
    except KeyError:
        raise BadLabel(f"{where} says '{name[:80]}', which is none of the {len(labels)} classes") from None
