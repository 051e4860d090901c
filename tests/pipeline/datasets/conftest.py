"""Small pictures that differ, and folders of them."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image


@pytest.fixture
def picture():
    """``picture(7)`` is the bytes of a PNG unlike ``picture(8)``."""

    def make(number, format_="PNG"):
        pixels = np.random.default_rng(number).integers(0, 256, (6, 5, 3), dtype=np.uint8)
        buffer = io.BytesIO()
        Image.fromarray(pixels).save(buffer, format_)
        return buffer.getvalue()

    return make


@pytest.fixture
def tree(tmp_path, picture):
    """``tree({"cats": 3, "dogs/small": 2})`` makes that many pictures in each folder below ``tmp_path/"root"``."""

    def make(classes, root="root"):
        number = 0
        for name, count in classes.items():
            folder = tmp_path / root / name
            folder.mkdir(parents=True, exist_ok=True)
            for index in range(count):
                (folder / f"{index}.png").write_bytes(picture(number := number + 1))
        return tmp_path / root

    return make
