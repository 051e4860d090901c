"""Rows of a local shard object, read straight into an array.

zarr takes milliseconds for each read, whatever its size, which is what streaming a store would then cost most. What
lies on a disk is therefore read here: the sharding codec of Zarr v3 with the index at the end (for each inner chunk its
offset and length as uint64, both 2⁶⁴−1 where nothing but fill was written, then the index's crc32c), and inner chunks
that are their values, little-endian, in C order, compressed where the layout says so, followed by a crc32c.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from pipeline.representation_store.compression import decompress
from pipeline.representation_store.layout import ArraySpec, StoreLayout, chunk_shape, shard_shape
from pipeline.stale import again_if_stale

_ABSENT = 2**64 - 1
_CHECKSUM = 4  # bytes


class DamagedShardError(ValueError):
    """The bytes of a shard object are not those that were written."""


@again_if_stale
def read_rows(
    path: Path, layout: StoreLayout, spec: ArraySpec, *, start: int, stop: int, view: int | None = None
) -> NDArray[Any]:
    """Rows ``start:stop`` of the shard object at ``path``, with the checksums of all that is read compared.

    Args:
        path: of the object.
        layout: of its store.
        spec: of its array.
        start, stop: rows of the unit.
        view: one view alone (drops the V axis), where the array has views; None = all.

    Returns:
        (stop − start, …) in the array's dtype.

    Raises:
        DamagedShardError: a checksum, a length or the place of a chunk is wrong.
        FileNotFoundError: there is no object.
    """
    rows, split = layout.chunk_rows, spec.split_views
    grid = [whole // part for whole, part in zip(shard_shape(layout, spec), chunk_shape(layout, spec), strict=True)]
    shape = chunk_shape(layout, spec)[2:]
    first, last = start // rows, max(math.ceil(stop / rows), start // rows)
    views = range(len(layout.views)) if view is None else range(view, view + 1)
    found = np.empty(((last - first) * rows, *((len(views), *shape[1:]) if split else shape)), dtype=spec.dtype)
    with _Object(path, math.prod(grid), layout.compressor) as shard:
        for number in range(first, last):
            part = slice((number - first) * rows, (number - first + 1) * rows)
            for place, one in enumerate(views if split else [0]):
                into = found[part, place] if split else found[part]
                shard.read(number * grid[2] + one if split else number, into, spec.fill)
    found = found[start - first * rows : stop - first * rows]
    if view is None or "V" not in spec.axes:
        return found
    return found[:, 0] if split else found[:, view]


@dataclass
class _Object:
    """One shard object, open."""

    path: Path
    chunks: int
    compressor: str

    def __enter__(self) -> _Object:
        self.file = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            self.index = self._index()
        except BaseException:
            os.close(self.file)
            raise
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.file)

    def _index(self) -> NDArray[np.uint64]:
        """(chunks, 2): offset and length of each."""
        found = np.empty(16 * self.chunks, dtype=np.uint8)
        self.size = os.fstat(self.file).st_size - len(found) - _CHECKSUM
        if self.size < 0:
            raise DamagedShardError("it is shorter than its index")
        self._fetch(found, self.size, "index")
        return found.view("<u8").reshape(self.chunks, 2)

    def read(self, chunk: int, into: NDArray[Any], fill: Any) -> None:
        """The values of an inner chunk."""
        offset, length = self.index[chunk].tolist()
        if offset == length == _ABSENT:
            into[...] = fill
            return
        plain = self.compressor == "none"
        if offset + length > self.size or (plain and length != into.nbytes + _CHECKSUM) or length < _CHECKSUM:
            raise DamagedShardError(f"inner chunk {chunk} does not lie where its index says")
        values = into if into.flags.c_contiguous else np.empty_like(into, order="C")
        data = values.reshape(-1).view(np.uint8)
        if plain:
            self._fetch(data, offset, f"inner chunk {chunk}")
        else:
            packed = np.empty(length - _CHECKSUM, dtype=np.uint8)
            self._fetch(packed, offset, f"inner chunk {chunk}")
            self._unpack(packed, data, chunk)
        if not np.little_endian and values.dtype.kind != "S":
            values.byteswap(inplace=True)
        if values is not into:
            into[...] = values

    def _unpack(self, packed: NDArray[np.uint8], into: NDArray[np.uint8], chunk: int) -> None:
        try:
            decompress(self.compressor, packed, into)
        except ValueError as error:
            raise DamagedShardError(f"inner chunk {chunk}: {error}") from error

    def _fetch(self, into: NDArray[np.uint8], offset: int, what: str) -> None:
        """Bytes from ``offset`` on, and the checksum behind them, which is compared."""
        stored = bytearray(_CHECKSUM)
        done, total = 0, len(into) + _CHECKSUM
        while done < total:  # a read gives 2 GB at most, and less where it is interrupted
            buffers = [into.data[done:], memoryview(stored)[max(0, done - len(into)) :]]
            got = os.preadv(self.file, [part for part in buffers if len(part)], offset + done)
            if not got:
                raise DamagedShardError(f"{what}: the object ends within it")
            done += got
        if google_crc32c.value(into) != int.from_bytes(stored, "little"):
            raise DamagedShardError(f"{what}: the checksum is wrong")
