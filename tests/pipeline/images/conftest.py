"""Tars written by hand, member by member, and small pictures."""

from __future__ import annotations

import io
import tarfile

import numpy as np
import pytest
from PIL import Image


@pytest.fixture
def make_tar(tmp_path):
    """``make_tar([(name, bytes), …])`` writes a plain tar; tests then damage it as they like."""

    def write(members, name="a.tar", format_=tarfile.GNU_FORMAT):
        path = tmp_path / name
        with tarfile.open(path, "w", format=format_, errors="surrogateescape") as tar:
            for member, data in members:
                info = tarfile.TarInfo(member)
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
        return path

    return write


@pytest.fixture
def encoded():
    """``encoded(image, "PNG", **options)`` gives the file's bytes."""

    def encode(image, format_="PNG", **options):
        buffer = io.BytesIO()
        image.save(buffer, format_, **options)
        return buffer.getvalue()

    return encode


@pytest.fixture
def photo():
    """A picture without symmetry, smooth enough for JPEG: 40 × 24 pixels."""
    y, x = np.mgrid[0:24, 0:40]
    pixels = np.stack([6 * x, 10 * y, 120 + 3 * x - 4 * y], axis=-1)
    return Image.fromarray(pixels.clip(0, 255).astype(np.uint8))
