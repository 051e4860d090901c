"""IDX files against arrays written by hand."""

import gzip
import io
import struct

import numpy as np
import pytest
from PIL import Image

from pipeline.datasets import make_dataset
from pipeline.datasets._idx import read_idx
from pipeline.datasets.fashion_mnist import CLASSES
from pipeline.errors import UserError


def idx(array):
    return struct.pack(">HBB", 0, 8, array.ndim) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def write(path, array):
    path.parent.mkdir(parents=True, exist_ok=True)
    data = idx(array)
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)


@pytest.fixture
def arrays():
    rng = np.random.default_rng(0)
    return rng.integers(0, 256, (30, 4, 3), dtype=np.uint8), np.arange(30, dtype=np.uint8) % 10


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("shape", [(30, 4, 3), (30, 4, 3, 3)])
def test_images_come_back(tmp_path, arrays, suffix, shape):
    labels = arrays[1]
    pixels = np.random.default_rng(1).integers(0, 256, shape, dtype=np.uint8)
    write(tmp_path / f"i{suffix}", pixels)
    write(tmp_path / f"l{suffix}", labels)
    dataset = make_dataset({"kind": "idx", "root": str(tmp_path), "images": f"i{suffix}", "labels": f"l{suffix}"})
    dataset.check()
    assert dataset.class_names() == [str(i) for i in range(10)]
    assert len(dataset) == 30
    for image in dataset.images():
        number = int(image.key.split("/")[1])
        assert image.class_name == str(labels[number])
        assert np.array_equal(np.asarray(Image.open(io.BytesIO(image.data))), pixels[number])


@pytest.mark.parametrize("inside", ["usr/share/datasets/fashion-mnist", ""])
@pytest.mark.parametrize(("part", "count"), [("train", 30), ("test", 10), ("all", 40)])
def test_fashion_mnist(tmp_path, arrays, inside, part, count):
    pixels, labels = arrays
    write(tmp_path / inside / "train-images-idx3-ubyte.gz", pixels)
    write(tmp_path / inside / "train-labels-idx1-ubyte.gz", labels)
    write(tmp_path / inside / "t10k-images-idx3-ubyte", pixels[:10])
    write(tmp_path / inside / "t10k-labels-idx1-ubyte", labels[:10])
    dataset = make_dataset({"kind": "fashion_mnist", "root": str(tmp_path), "part": part})
    dataset.check()
    assert dataset.class_names() == list(CLASSES)  # the authors' order: the index is their label
    assert len(list(dataset.images())) == len(dataset) == count
    seen = make_dataset({"kind": "fashion_mnist", "root": str(tmp_path), "part": part, "split": "seen"})
    assert seen.class_names() == [name for name in CLASSES if name in seen.class_names()]
    assert len(seen) == count * 7 // 10


@pytest.mark.parametrize("name", ["{}.{}", "{0}-{1}/{0}-{1}"])
def test_the_files_may_be_called_as_unpackers_call_them(tmp_path, arrays, name):
    for part, values in zip((("t10k-images", "idx3-ubyte"), ("t10k-labels", "idx1-ubyte")), arrays, strict=True):
        write(tmp_path / name.format(*part), values)
    dataset = make_dataset({"kind": "mnist", "root": str(tmp_path)})
    dataset.check()
    assert len(dataset) == 30


def test_what_is_wrong_is_said(tmp_path, arrays):
    pixels, labels = arrays
    dataset = {"kind": "fashion_mnist", "root": str(tmp_path)}
    with pytest.raises(UserError, match=r"no file .*train-images-idx3-ubyte\.gz\. Get it .* dataset-fashion-mnist"):
        make_dataset(dataset).check()
    write(tmp_path / "train-images-idx3-ubyte", pixels)
    write(tmp_path / "train-labels-idx1-ubyte", labels[:29])
    with pytest.raises(UserError, match="not one label an image"):
        make_dataset(dataset).check()


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "not a whole IDX file"),
        (idx(np.zeros((3, 2), np.uint8))[:-1], r"holds 5 values where its header says \(3, 2\)"),
        (gzip.compress(idx(np.zeros((3, 2), np.uint8)), mtime=0)[:-9], "not a whole IDX file"),
        (b"\x89PNG\r\n\x1a\n" + bytes(9), "not an IDX file of unsigned bytes"),
        (struct.pack(">HBBI", 0, 0x0D, 1, 1) + bytes(4), "not an IDX file of unsigned bytes"),
        (struct.pack(">HBB", 0, 8, 200), "not a whole IDX file"),
    ],
)
def test_damaged_files(tmp_path, data, said):
    path = tmp_path / "x"
    path.write_bytes(data)
    with pytest.raises(UserError, match=said):
        read_idx(path)


def test_a_label_without_a_name(tmp_path, arrays):
    write(tmp_path / "i", arrays[0])
    write(tmp_path / "l", arrays[1])
    values = {"kind": "idx", "root": str(tmp_path), "images": "i", "labels": "l", "class_names": ["a", "b"]}
    with pytest.raises(UserError, match="has the label 9, but there are 2 class names"):
        make_dataset(values).check()
