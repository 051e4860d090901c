"""Small JPEGs of chosen images, read from their tars."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence, Set
from pathlib import Path

from PIL import Image

from pipeline.images.decode import decode
from pipeline.images.tars import TarSample, read_tar

SIDE = 144  # pixels: 72 at the density of a phone's screen


def read_thumbnails(tars: Sequence[Path], wanted: Mapping[int, Set[str]]) -> Iterator[tuple[str, bytes]]:
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


def thumbnail(image: Image.Image) -> bytes:
    """The whole image within SIDE × SIDE pixels, on white, as JPEG."""
    image.thumbnail((SIDE, SIDE), Image.Resampling.LANCZOS)
    square = Image.new("RGB", (SIDE, SIDE), "white")
    square.paste(image, ((SIDE - image.width) // 2, (SIDE - image.height) // 2))
    buffer = io.BytesIO()
    square.save(buffer, format="JPEG", quality=82)
    return buffer.getvalue()
