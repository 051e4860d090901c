"""Encoded bytes → one upright RGB image: whole, or refused with the reason. ``docs/inputs.md`` is the policy."""

from __future__ import annotations

import io
import re
import warnings

import numpy as np
from PIL import ExifTags, Image

from pipeline.faults import BadImage

__all__ = ["MAX_PIXELS", "BadImage", "decode", "upright_rgb"]

#: Images with more pixels are refused before they are decoded: twice Pillow's own threshold of warning.
MAX_PIXELS = 178_956_970
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
    _silence_pillow()
    name = _format_of(data)
    try:
        image = Image.OPEN[name][0](io.BytesIO(data), "")  # Image.open would judge the size by a global limit
        width, height = image.size
        if width * height > max_pixels:
            raise BadImage(f"too many pixels: {width} × {height}, at most {max_pixels} are decoded")
        image.load()
        return upright_rgb(image)
    except (BadImage, MemoryError):
        raise
    except Exception as error:  # decoders meet hostile bytes with errors of every kind
        raise BadImage(f"cannot be decoded as {name}: {error or type(error).__name__}") from error


def upright_rgb(image: Image.Image) -> Image.Image:
    """What :func:`decode` makes of an image once its pixels are there: mode RGB, turned as its EXIF orientation says.

    Raises:
        BadImage: its values have no fixed range.
    """
    upright = TRANSPOSE.get(_orientation(image))
    rgb = _rgb(image)
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
    if image.mode != "RGBA":
        image = image.convert("RGBA")
    white = Image.new("RGB", image.size, "white")
    white.paste(image, mask=image)  # 4 bytes a pixel less than alpha_composite, for the same result
    return white


def _from_grey_16(image: Image.Image) -> Image.Image:
    table = GREY_16_TO_8
    transparent = image.info.get("transparency")
    if isinstance(transparent, int):
        table = table.copy()
        table[transparent] = 255  # composed on white
    return Image.fromarray(table[np.asarray(image)]).convert("RGB")


_SILENT = re.compile(r"PIL\.")


def _silence_pillow() -> None:
    """Ignore Pillow's warnings about metadata and sizes: what matters is raised here, with a reason.

    The filter stays in place, because setting it around each call is not safe between threads.
    """
    if ("ignore", None, Warning, _SILENT, 0) not in warnings.filters:
        warnings.filterwarnings("ignore", module=_SILENT.pattern)
