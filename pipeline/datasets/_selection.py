"""Which images of a listing a split takes, in which order and under which keys; kept on disk for the next process."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.datasets._keys import key_of, mixed_rows, times_of
from pipeline.datasets._listing import Entry, Listing, Texts, listing_of
from pipeline.digests import canonical_json
from pipeline.files import atomic_file, read_json, write_json

Array = NDArray[Any]
META = "listing.json"  # written last


@dataclass(frozen=True, kw_only=True)
class Selection:
    """n images of a listing in mixed order.

    Attributes:
        listing: all that the source holds.
        row_n: int64, index into the listing.
        times_n: int32, see :func:`pipeline.datasets._keys.key_of`.
        class_names: in the order of the labels.
        left_out: images of the source that are not taken on purpose, by reason.
        digest: of class, source and key of every image, in order.
    """

    listing: Listing
    row_n: Array
    times_n: Array
    class_names: tuple[str, ...]
    left_out: Mapping[str, int]
    digest: str

    def __len__(self) -> int:
        return len(self.row_n)

    def entries(self, start: int, stop: int) -> Iterator[tuple[str, Entry]]:
        """Key and entry of images number ``start`` to ``stop`` - 1."""
        for row, times in zip(self.row_n[start:stop], self.times_n[start:stop], strict=True):
            entry = self.listing[int(row)]
            yield entry.key or key_of(entry.source, int(times)), entry


def select(listing: Listing, rows: Array, class_names: tuple[str, ...], left_out: Mapping[str, int]) -> Selection:
    """The images ``rows`` of ``listing``, mixed."""
    sources, keys = _Some(listing.sources, rows), listing.keys
    times = times_of(sources) if keys is None else np.zeros(len(rows), np.int32)

    def key(place: int) -> str:
        return keys[rows[place]] if keys is not None else key_of(sources[place], int(times[place]))

    order = mixed_rows(key, len(rows))
    made = Selection(
        listing=listing,
        row_n=rows[order],
        times_n=times[order],
        class_names=class_names,
        left_out=left_out,
        digest="",
    )
    return replace(made, digest=_digest(made))


class _Some(Sequence[str]):
    """Some of the texts."""

    def __init__(self, texts: Texts, rows: Array) -> None:
        self._texts, self._rows = texts, rows

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: Any) -> Any:
        return self._texts[self._rows[index]]


def _digest(selection: Selection) -> str:
    """``pipeline.digests.digest`` of the list of [class, source, key], without making the list."""
    made = hashlib.sha256(b"[")
    for number, (key, entry) in enumerate(selection.entries(0, len(selection))):
        made.update(b"," if number else b"")
        made.update(canonical_json([entry.class_name, entry.source, key]).encode())
    made.update(b"]")
    return made.hexdigest()


def save(selection: Selection, folder: Path) -> None:
    """Write the selection; a folder with a :data:`META` is whole. Two processes write the same bytes."""
    arrays = {**selection.listing.arrays(), "row_n": selection.row_n, "times_n": selection.times_n}
    for name, values in arrays.items():
        with atomic_file(folder / f"{name}.npy") as file:
            np.save(file, values)
    words = {**selection.listing.words(), "classes": list(selection.class_names)}
    facts = {"digest": selection.digest, "left_out": dict(selection.left_out), "arrays": sorted(arrays)}
    write_json(folder / META, {**words, **facts})


def load(folder: Path) -> Selection | None:
    """What :func:`save` wrote, the arrays mapped and not read; None if nothing whole is there."""
    if not (folder / META).exists():
        return None
    facts = read_json(folder / META)
    arrays = {name: np.load(folder / f"{name}.npy", mmap_mode="r") for name in facts["arrays"]}
    return Selection(
        listing=listing_of(arrays, facts),
        row_n=arrays["row_n"],
        times_n=arrays["times_n"],
        class_names=tuple(facts["classes"]),
        left_out=facts["left_out"],
        digest=facts["digest"],
    )
