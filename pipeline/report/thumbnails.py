"""Small JPEGs of chosen images, read from their tars."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Any

from PIL import Image, ImageOps

from pipeline.files import write_bytes
from pipeline.images.decode import decode
from pipeline.images.tars import TarSample, read_tar
from pipeline.places import Place

SIDE = 144  # pixels: 72 at the density of a phone's screen


def read_thumbnails(tars: Sequence[Place], wanted: Mapping[int, Set[str]]) -> Iterator[tuple[str, bytes]]:
    """Key and thumbnail of chosen images.

    Args:
        tars: the collection's tars; a unit is an index of them.
        wanted: unit → keys. Only these tars are opened.
    """
    for unit, keys in sorted(wanted.items()):
        left = set(keys)
        for sample in read_tar(tars[unit]):
            if isinstance(sample, TarSample) and sample.key in left:
                yield sample.key, thumbnail(decode(sample.data))
                left.remove(sample.key)
            if not left:
                break


def add_thumbnails(items: Sequence[dict[str, Any]], tars: Sequence[Place], folder: Place, place: str) -> None:
    """Write a thumbnail of each item below ``folder/place``, and its path from ``folder`` into ``item["thumbnail"]``.

    Args:
        items: with ``key`` and ``unit``, as the extremes of results have them.
        tars: the collection's tars.
        folder: of the report.
        place: folder below it.
    """
    wanted: dict[int, set[str]] = {}
    for item in items:
        wanted.setdefault(item["unit"], set()).add(item["key"])
    files = {}
    for number, (key, data) in enumerate(read_thumbnails(tars, wanted)):
        files[key] = f"{place}/{number:03d}.jpg"
        write_bytes(folder / files[key], data)
    for item in items:
        item["thumbnail"] = files[item["key"]]


def thumbnail(image: Image.Image) -> bytes:
    """The whole image, as large as it fits on SIDE × SIDE white pixels, as JPEG."""
    square = ImageOps.pad(image, (SIDE, SIDE), Image.Resampling.LANCZOS, color="white")
    buffer = io.BytesIO()
    square.save(buffer, format="JPEG", quality=82)
    return buffer.getvalue()
