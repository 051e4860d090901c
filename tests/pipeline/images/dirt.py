"""Samples and tars as they should not be, small, made anew from a random generator; each with what is to become of it.

``dirty_sample(kind, rng, key)`` gives the members of one sample, and for every key that they form either None (it is
used) or a regular expression that the reason of its quarantine matches. ``broken_tar(kind, data)`` damages a whole tar.
"""

from __future__ import annotations

import gzip
import io
import re
import struct
import tarfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from PIL import Image

Members = list[tuple[str, bytes]]
CLASSES = 3  # labels of clean samples are 0, 1, 2


class DirtySample(NamedTuple):
    """Members of a tar, and what becomes of each key among them: None = used, else what the reason matches."""

    members: Members
    expected: Mapping[str, str | None]


def tar_bytes(members: Sequence[tuple[str, bytes]], format_: int = tarfile.GNU_FORMAT) -> bytes:
    """A whole tar; names may hold surrogate escapes."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=format_, errors="surrogateescape") as tar:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


def clean_sample(rng: np.random.Generator, key: str) -> Members:
    """A sample with nothing wrong."""
    return [(f"{key}.png", encoded(picture(rng))), label(rng, key)]


def label(rng: np.random.Generator, key: str) -> tuple[str, bytes]:
    return f"{key}.cls", b"%d" % rng.integers(CLASSES)


def picture(rng: np.random.Generator, mode: str = "RGB", size: tuple[int, int] = (12, 9)) -> Image.Image:
    """Noise."""
    channels = {"L": 1, "LA": 2, "RGB": 3, "RGBA": 4, "CMYK": 4}[mode]
    values = rng.integers(0, 256, (size[1], size[0], channels), dtype=np.uint8)
    return Image.frombytes(mode, size, values.tobytes())


def encoded(image: Image.Image, format_: str = "PNG", **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, format_, **options)
    return buffer.getvalue()


# -- images that Pillow does not write


def png(width: int, height: int, depth: int, colour: int, rows: bytes | None) -> bytes:
    """A PNG by hand. ``rows``: of unfiltered bytes, a zero byte before each; None: none, the header only claims."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0))
    data = chunk(b"IDAT", zlib.compress(rows if rows is not None else bytes(10), 1))
    return b"\x89PNG\r\n\x1a\n" + header + data + chunk(b"IEND", b"")


def png_16(values_HWC: np.ndarray) -> bytes:
    """Grey (1 channel) or colour (3) of 16 bits, which Pillow reads but does not write."""
    height, width, channels = values_HWC.shape
    rows = np.zeros((height, 1 + 2 * width * channels), np.uint8)
    rows[:, 1:] = values_HWC.astype(">u2").reshape(height, -1).view(np.uint8)
    return png(width, height, 16, {1: 0, 3: 2}[channels], rows.tobytes())


def four_channel_jpeg(image: Image.Image, adobe_transform: int | None) -> bytes:
    """A JPEG of four channels. The Adobe marker says 0 = CMYK, 2 = YCCK (what is stored is then taken as Y, Cb, Cr, K);
    None = without the marker."""
    data = encoded(image, "JPEG", quality=95)
    place = data.index(b"\xff\xee\x00\x0eAdobe")  # APP14, 2 + 14 bytes, the last is the transform
    marker = b"" if adobe_transform is None else data[place : place + 15] + bytes([adobe_transform])
    return data[:place] + marker + data[place + 16 :]


def _exif(orientation: int) -> Image.Exif:
    exif = Image.Exif()
    exif[0x0112] = orientation
    return exif


# -- samples

Builder = Callable[[np.random.Generator, str], tuple[Members, Mapping[str, str | None]]]


def _image(extension: str, reason: str | None, make: Callable[[np.random.Generator], bytes]) -> Builder:
    """A sample whose image is odd and whose label is good."""
    return lambda rng, key: ([(f"{key}.{extension}", make(rng)), label(rng, key)], {key: reason})


def _label(extension: str, text: bytes, reason: str | None) -> Builder:
    """A sample whose image is good and whose label is odd."""
    return lambda rng, key: (
        [(f"{key}.png", encoded(picture(rng))), (f"{key}.{extension}", text)],
        {key: reason},
    )


def _named(names: Sequence[str], expected: Mapping[str, str | None]) -> Builder:
    """Members of odd names; {} stands for the key."""

    def build(rng: np.random.Generator, key: str) -> tuple[Members, Mapping[str, str | None]]:
        members = [
            (name.format(key), b"1" if name.endswith((".cls", ".txt")) else encoded(picture(rng))) for name in names
        ]
        return members, {name.format(key): reason for name, reason in expected.items()}

    return build


def _cut(format_: str, share: float) -> Callable[[np.random.Generator], bytes]:
    def make(rng: np.random.Generator) -> bytes:
        data = encoded(picture(rng, size=(32, 24)), format_)
        return data[: int(len(data) * share)]

    return make


def _flipped_png(rng: np.random.Generator) -> bytes:
    data = bytearray(encoded(picture(rng)))
    data[data.index(b"IDAT") + 20] ^= 4
    return bytes(data)


DIRT: dict[str, Builder] = {
    # used, though odd
    "jpeg": _image("jpeg", None, lambda rng: encoded(picture(rng), "JPEG")),
    "upper_case": _image("JPG", None, lambda rng: encoded(picture(rng), "JPEG")),
    "webp": _image("webp", None, lambda rng: encoded(picture(rng), "WEBP")),
    "wrong_extension": _image("jpg", None, lambda rng: encoded(picture(rng))),
    "grey": _image("png", None, lambda rng: encoded(picture(rng, "L"))),
    "palette": _image("png", None, lambda rng: encoded(picture(rng).quantize(7), transparency=2)),
    "alpha": _image("png", None, lambda rng: encoded(picture(rng, "RGBA"))),
    "grey_alpha": _image("png", None, lambda rng: encoded(picture(rng, "LA"))),
    "grey_16": _image("png", None, lambda rng: png_16(rng.integers(0, 1 << 16, (9, 12, 1)))),
    "rgb_16": _image("png", None, lambda rng: png_16(rng.integers(0, 1 << 16, (9, 12, 3)))),
    "cmyk": _image("jpg", None, lambda rng: four_channel_jpeg(picture(rng, "CMYK"), 0)),
    "cmyk_unmarked": _image("jpg", None, lambda rng: four_channel_jpeg(picture(rng, "CMYK"), None)),
    "ycck": _image("jpg", None, lambda rng: four_channel_jpeg(picture(rng, "CMYK"), 2)),
    "rotated": _image("jpg", None, lambda rng: encoded(picture(rng), "JPEG", exif=_exif(int(rng.integers(2, 9))))),
    "one_pixel": _image("png", None, lambda rng: encoded(picture(rng, size=(1, 1)))),
    "long_and_thin": _image("png", None, lambda rng: encoded(picture(rng, size=(900, 1)))),
    "dotted_key": _named(["{}.v2.png", "{}.v2.cls"], {"{}.v2": None}),
    "two_dotted_keys": _named(["{}.a.png", "{}.a.cls", "{}.b.png", "{}.b.cls"], {"{}.a": None, "{}.b": None}),
    "dotted_folder": _named(["{}/00.5/a.b.c/x.png", "{}/00.5/a.b.c/x.cls"], {"{}/00.5/a.b.c/x": None}),
    "further_members": _named(["{}.png", "{}.seg.png", "{}.npy", "{}.cls"], {"{}": None}),
    "json_label": _label("json", b'{"label": 1, "url": "x"}', None),
    # images that cannot be used
    "cut_jpeg": _image("jpg", r"cannot be decoded as JPEG", _cut("JPEG", 0.6)),
    "cut_png": _image("png", r"cannot be decoded as PNG", _cut("PNG", 0.6)),
    "cut_webp": _image("webp", r"cannot be decoded as WEBP", _cut("WEBP", 0.6)),
    "flipped_png": _image("png", r"cannot be decoded as PNG", _flipped_png),
    "empty": _image("jpg", r"^empty file \(0 bytes\)$", lambda rng: b""),
    "gzipped": _image("jpg", r"^gzip-compressed bytes", lambda rng: gzip.compress(encoded(picture(rng)), mtime=0)),
    "html": _image("jpg", r"^none of the formats .* begins with b'<html>", lambda rng: b"<html>404 Not Found</html>"),
    "floats": _image(
        "tiff", r"32 bits", lambda rng: encoded(Image.fromarray(rng.random((4, 4), dtype=np.float32)), "TIFF")
    ),
    "bomb": _image("png", r"^too many pixels: 65000 × 65000", lambda rng: png(65_000, 65_000, 8, 2, None)),
    "claims_100_megapixels": _image("png", r"cannot be decoded as PNG", lambda rng: png(10_000, 10_000, 8, 2, None)),
    # labels that cannot be used
    "label_missing": lambda rng, key: ([(f"{key}.png", encoded(picture(rng)))], {key: r"^label missing"}),
    "label_negative": _label("cls", b"-1", r"^cls says -1, but labels run from 0"),
    "label_too_large": _label("cls", b"30000", r"^cls says 30000, but labels run from 0"),
    "label_no_number": _label("cls", b"cat", r"^cls says 'cat', which is not a whole number"),
    "label_not_utf8": _label("cls", b"\xff\xfe", r"^cls is not UTF-8"),
    "label_broken_json": _label("json", b'{"label": ', r"^json cannot be read"),
    # members that are no sample
    "duplicate": _named(["{}.png", "{}.cls", "{}.png", "{}.cls"], {"{}": r"two members of this key end in \.png"}),
    "repeated": _named(
        ["{}.png", "{}.cls", "{}-between.png", "{}-between.cls", "{}.png", "{}.cls"],
        {"{}": r"do not lie together", "{}-between": None},
    ),
    "interleaved": _named(
        ["{}.png", "{}-other.png", "{}.cls", "{}-other.cls"],
        {"{}": r"do not lie together", "{}-other": r"do not lie together"},
    ),
    "two_images": _named(["{}.png", "{}.jpg", "{}.cls"], {"{}": r"^several images for one key: jpg, png"}),
    "two_dotted_images": _named(
        ["{}.left.png", "{}.right.png", "{}.cls"], {"{}": r"^several images for one key: left\.png, right\.png"}
    ),
    "no_image": _named(["{}.cls", "{}.txt"], {"{}": r"^no image among its members: cls, txt"}),
    "no_extension": _named(["{}"], {"{}": r"no extension"}),
    "leads_out": _named(["../{}.png", "../{}.cls"], {"../{}": r"leads out of the tar"}),
    "absolute": _named(["/{}.png"], {"/{}": r"absolute path"}),
    "not_utf8": _named(["{}\udce9.png", "{}\udce9.cls"], {"{}\\xe9": r"not UTF-8"}),
}
KINDS = tuple(DIRT)
#: Kinds after which nothing of the sample is left, and those after which all of it is.
BAD_KINDS = tuple(kind for kind, make in DIRT.items() if all(make(np.random.default_rng(0), "k")[1].values()))
ODD_KINDS = tuple(kind for kind, make in DIRT.items() if not any(make(np.random.default_rng(0), "k")[1].values()))


def dirty_sample(kind: str, rng: np.random.Generator, key: str) -> DirtySample:
    """One sample of a kind of :data:`KINDS` (the same for the same state of ``rng``).

    ``key`` must have no dot, and no other sample of the tar may have a key that begins with it.
    """
    return DirtySample(*DIRT[kind](rng, key))


# -- whole tars

BROKEN: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "cut_in_member": (lambda data: data[: 512 + 20], r"the file ends inside '"),
    "cut_on_boundary": (
        lambda data: data[: _end(data)],
        r"ends without the two end-of-archive blocks",
    ),
    "cut_in_header": (lambda data: data[: _second(data) + 100], r"the file ends inside a header"),
    "one_end_block": (lambda data: data[: _end(data) + 512], r"ends without the two end-of-archive blocks"),
    "zero_bytes": (lambda data: b"", r"broken at byte 0"),
    "no_tar": (lambda data: b"<html>404 Not Found</html>" * 100, r"no readable tar header"),
    "gzipped": (lambda data: gzip.compress(data, mtime=0), r"unpack it first"),
    "joined": (lambda data: data + data, r"two tars joined"),
    "damaged_header": (
        lambda data: data[:150] + bytes([data[150] ^ 0x11]) + data[151:],
        r"broken at byte 0: no readable tar header",
    ),
}
BROKEN_KINDS = tuple(BROKEN)


def broken_tar(kind: str, data: bytes) -> tuple[bytes, str]:
    """A whole tar (of at least two members) damaged, and what the message matches."""
    damage, said = BROKEN[kind]
    return damage(data), said


def _second(data: bytes) -> int:
    """Where the second header begins."""
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        return tar.getmembers()[1].offset


def _end(data: bytes) -> int:
    """Where the end-of-archive blocks begin."""
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        last = tar.getmembers()[-1]
        return last.offset_data + -(-last.size // 512) * 512


def agrees(outcome: Mapping[str, str | None], expected: Mapping[str, str | None]) -> list[str]:
    """Where key → None or reason differs from what :func:`dirty_sample` expects; empty when nothing does."""
    lines = [f"{key}: comes out, unexpected" for key in outcome.keys() - expected.keys()]
    for key, wanted in expected.items():
        found = outcome.get(key, "nothing at all")
        right = found is None if wanted is None else found is not None and re.search(wanted, found)
        if not right:
            lines.append(f"{key}: {found!r}, expected {wanted!r}")
    return sorted(lines)
