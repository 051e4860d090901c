"""Small JPEGs of chosen images, read from their tars."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence, Set

from PIL import Image, ImageOps

from pipeline.images.decode import decode
from pipeline.images.tars import TarSample, read_tar
from pipeline.places import Place

SIDE = 144  # pixels: 72 at the density of a phone's screen


def read_thumbnails(tars: Sequence[Place], wanted: Mapping[int, Set[str]]) -> Iterator[tuple[tuple[int, str], bytes]]:
    """Unit and key, and the thumbnail, of chosen images; two tars may have the same key.

    Args:
        tars: the collection's tars; a unit is an index of them.
        wanted: unit → keys. Only these tars are opened.
    """
    for unit, keys in sorted(wanted.items()):
        left = set(keys)
        for sample in read_tar(tars[unit]):
            if isinstance(sample, TarSample) and sample.key in left:
                yield (unit, sample.key), thumbnail(decode(sample.data))
                left.remove(sample.key)
            if not left:
                break


def thumbnail(image: Image.Image) -> bytes:
    """The whole image, as large as it fits on SIDE × SIDE white pixels, as JPEG."""
    square = ImageOps.pad(image, (SIDE, SIDE), Image.Resampling.LANCZOS, color="white")
    buffer = io.BytesIO()
    square.save(buffer, format="JPEG", quality=82)
    return buffer.getvalue()
