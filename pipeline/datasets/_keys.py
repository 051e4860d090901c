"""Sample keys from paths, and the mixed order that follows from them, for millions of images without holding them."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
NOT_ALIKE = -1  # times of a key that no other image has


def plain_key(source: str) -> str:
    """A key of ``[A-Za-z0-9_/-]`` from a path: no extension, other characters become ``_``."""
    return re.sub(r"[^A-Za-z0-9_/-]", "_", source.rpartition(".")[0] or source)


def key_of(source: str, times: int) -> str:
    """The key of an image: :func:`plain_key`, and where other images have the same (``a.png`` and ``a.jpg``), eight
    digits of a hash of its path and of how often that path came before."""
    if times == NOT_ALIKE:
        return plain_key(source)
    mark = hashlib.blake2b(f"{times}/{source}".encode("utf-8", "surrogateescape"), digest_size=4)
    return f"{plain_key(source)}-{mark.hexdigest()}"


def times_of(sources: Sequence[str]) -> Array:
    """(N) int32: :data:`NOT_ALIKE` where the plain key is unique, else how often the same source came before."""
    marks = digests((plain_key(source) for source in sources), len(sources), 8)[:, 0]
    _, inverse, counts = np.unique(marks, return_inverse=True, return_counts=True)
    times = np.full(len(sources), NOT_ALIKE, np.int32)
    alike = np.flatnonzero(counts[inverse] > 1)  # or two hashes of 64 bits that happen to be equal
    plain = Counter(plain_key(sources[row]) for row in alike.tolist())
    before = Counter[str]()
    for row in alike.tolist():
        source = sources[row]
        if plain[plain_key(source)] > 1:
            times[row] = before[source]
            before[source] += 1
    return times


def unique_keys(sources: Sequence[str]) -> list[str]:
    """The keys of all ``sources``; for a list of them."""
    keys = [key_of(source, int(times)) for source, times in zip(sources, times_of(sources), strict=True)]
    assert len(set(keys)) == len(keys), "keys must be unique"
    return keys


def digests(texts: Iterable[str], count: int, size: int) -> Array:
    """blake2b of every text, as (count, size / 8) big-endian uint64."""
    made = bytearray()
    for text in texts:
        made += hashlib.blake2b(text.encode("utf-8", "surrogateescape"), digest_size=size).digest()
    return np.frombuffer(made, ">u8").reshape(count, size // 8).astype(np.uint64)


def mixed_rows(key: Callable[[int], str], count: int, seed: int = 0) -> Array:
    """(count) int64: :func:`pipeline.datasets.base.mixed_order` of keys that are made when they are asked for."""
    marks = digests((f"{seed}/{key(row)}" for row in range(count)), count, 16)
    return np.lexsort((marks[:, 1], marks[:, 0]))
