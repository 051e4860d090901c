"""Encoded bytes → one upright RGB image: whole, or refused with the reason. ``docs/inputs.md`` is the policy."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import numpy as np
from PIL import ExifTags, Image, ImageFile

from pipeline.faults import BadImage
from pipeline.images.room import MAX_PIXELS, ROOM

__all__ = ["MAX_PIXELS", "BadImage", "decode", "upright_rgb", "use_decoded"]

T = TypeVar("T")
BAND_PIXELS = 1 << 20  # of a conversion that has something in between
FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF")
TRANSPOSE = {  # EXIF 2.32, tag 0x0112 → what makes the image upright
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
Image.init()  # fills Image.OPEN, here once and not in several threads
GREY_16_TO_8 = ((np.arange(1 << 16) * 255 + 32767) // 65535).astype(np.uint8)  # v / 257, rounded


def decode(data: bytes, *, max_pixels: int = MAX_PIXELS) -> Image.Image:
    """Decode an image whose content, not its name, says what it is.

    Palette, grey and CMYK images are converted; transparency is composed on white; 16-bit grey is scaled to 8 bits; of
    an animation the first frame is taken; the EXIF orientation is applied. Safe to call from several threads.

    Args:
        data: the encoded file.
        max_pixels: larger images are refused from their header alone.

    Returns:
        An image of mode RGB.

    Raises:
        BadImage: no bytes, an unknown format, cut off, damaged, too large, or without a fixed range of values.
    """
    return use_decoded(data, lambda image: image, max_pixels=max_pixels)


def use_decoded(data: bytes, use: Callable[[Image.Image], T], *, max_pixels: int = MAX_PIXELS) -> T:
    """``use(decode(data))``, for a ``use`` that makes something small of the image.

    Until it returns, other threads that want to decode giants wait for room (:mod:`pipeline.images.room`); then the
    image is gone.
    """
    _silence_pillow()
    name = _format_of(data)
    opened: list[Image.Image] = []  # no name here may keep the image
    with _refusing(name):
        opened.append(Image.OPEN[name][0](io.BytesIO(data), ""))  # Image.open would judge the size by a global limit
        width, height = opened[0].size
        if width * height > max_pixels:
            raise BadImage(f"too many pixels: {width} × {height}, at most {max_pixels} are decoded")
    with ROOM.taken(width * height):
        with _refusing(name):
            opened[0].load()
            opened.append(_upright_rgb(opened.pop(), ours=True))
        return use(opened.pop())


@contextmanager
def _refusing(name: str) -> Iterator[None]:
    try:
        yield
    except (BadImage, MemoryError):
        raise
    except Exception as error:  # decoders meet hostile bytes with errors of every kind
        raise BadImage(f"cannot be decoded as {name}: {str(error) or type(error).__name__}") from error


def upright_rgb(image: Image.Image) -> Image.Image:
    """What :func:`decode` makes of an image once its pixels are there: mode RGB, turned as its EXIF orientation says.

    Raises:
        BadImage: it cannot be loaded whole, has no pixels, or its values have no fixed range.
    """
    _silence_pillow()
    if isinstance(image, ImageFile.ImageFile) and image.tile and getattr(image.fp, "closed", True):
        raise BadImage("its file was closed before its pixels were read; call load() of the image while it is open")
    with _refusing(image.format or "an image"):
        # before anyone asks for its EXIF: Pillow takes what a load that failed has left for the whole image
        image.load()
        return _upright_rgb(image, ours=False)


def _upright_rgb(image: Image.Image, *, ours: bool) -> Image.Image:
    if 0 in image.size:
        raise BadImage(f"no pixels: {image.width} × {image.height}")
    upright = TRANSPOSE.get(_orientation(image))
    rgb = image if ours and image.mode == "RGB" and not image.has_transparency_data else _rgb(image)
    rgb.info.clear()  # it says how the source was turned, which is done now
    return rgb if upright is None else rgb.transpose(upright)


def _format_of(data: bytes) -> str:
    if not data:
        raise BadImage("empty file (0 bytes)")
    start = data[:16]
    if start.startswith(b"\x1f\x8b"):
        raise BadImage("gzip-compressed bytes, not an image file")
    for name in FORMATS:
        accept = Image.OPEN[name][1]
        if accept is not None and accept(start) is True:
            return name
    raise BadImage(f"none of the formats {', '.join(FORMATS)}: the file begins with {start!r}")


def _orientation(image: Image.Image) -> int:
    try:
        return int(image.getexif().get(ExifTags.Base.Orientation, 1))
    except Exception:  # damaged metadata say nothing about the pixels
        return 1


def _rgb(image: Image.Image) -> Image.Image:
    if image.mode.startswith("I;16"):
        return _from_grey_16(image)
    if image.mode in ("I", "F"):
        raise BadImage(f"pixels of 32 bits (Pillow mode {image.mode}) have no fixed range")
    if not image.has_transparency_data:
        return image.convert("RGB")
    return _in_bands(image, _on_white)


def _in_bands(image: Image.Image, convert: Callable[[Image.Image], Image.Image]) -> Image.Image:
    """``convert(image)``, which looks at each pixel alone, with the memory of some rows for what lies between."""
    made = Image.new("RGB", image.size)
    rows = max(1, BAND_PIXELS // image.width)
    for top in range(0, image.height, rows):
        made.paste(convert(image.crop((0, top, image.width, min(top + rows, image.height)))), (0, top))
    return made


def _on_white(image: Image.Image) -> Image.Image:
    image = image if image.mode == "RGBA" else image.convert("RGBA")
    white = Image.new("RGB", image.size, "white")
    white.paste(image, mask=image)
    return white


def _from_grey_16(image: Image.Image) -> Image.Image:
    table = GREY_16_TO_8
    transparent = image.info.get("transparency")
    if isinstance(transparent, int):
        table = table.copy()
        table[transparent] = 255  # composed on white
    return _in_bands(image, lambda band: Image.fromarray(table[np.asarray(band)]).convert("RGB"))


_SILENT = re.compile(r"PIL\.")


def _silence_pillow() -> None:
    """Ignore Pillow's warnings about metadata and sizes: what matters is raised here, with a reason.

    The filter stays in place, because setting it around each call is not safe between threads.
    """
    if ("ignore", None, Warning, _SILENT, 0) not in warnings.filters:
        warnings.filterwarnings("ignore", module=_SILENT.pattern)
