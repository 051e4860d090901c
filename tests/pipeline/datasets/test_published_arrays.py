"""Datasets whose authors publish arrays and no files of images."""

import os
import pickle

import numpy as np
import pytest

from pipeline.errors import UserError
from pipeline.images.decode import decode
from tests import published
from tests.published import found, read


@pytest.mark.parametrize("kind", ["cifar10", "cifar100"])
def test_both_forms_of_cifar_give_the_same_images_and_keys(kind, tmp_path):
    getattr(published, f"make_{kind}")(tmp_path / "one")
    getattr(published, f"make_{kind}_python")(tmp_path / "two")
    one, two = (read(kind, tmp_path / name, part="all") for name in ("one", "two"))
    assert one.class_names() == two.class_names()
    assert list(one.images()) == list(two.images())
    assert one.listing() == two.listing()


def test_cifar_has_the_pixels_and_names_of_its_files(tmp_path):
    published.make_cifar10(tmp_path)
    dataset = read("cifar10", tmp_path)
    assert dataset.class_names() == published.CIFAR10
    for image in dataset.images():
        index = int(image.source.removeprefix("test_batch/"))
        assert image.class_name == published.CIFAR10[index % 10]
        np.testing.assert_array_equal(
            np.asarray(decode(image.data)), published.pixels(12, seed=5)[index].transpose(1, 2, 0)
        )


def test_cifar100_has_fine_and_coarse_labels(tmp_path):
    published.make_cifar100(tmp_path)
    assert found(read("cifar100", tmp_path))["test/00003"] == "fine_96"
    assert found(read("cifar100", tmp_path, labels="coarse"))["test/00003"] == "coarse_3"


class Evil:
    def __reduce__(self):
        return os.mkdir, ("evil",)


@pytest.mark.parametrize("protocol", [2, 4])
def test_a_pickle_runs_nothing(protocol, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = published.make_cifar10_python(tmp_path)
    (folder / "test_batch").write_bytes(pickle.dumps({b"labels": [], b"data": Evil()}, protocol))
    with pytest.raises(UserError, match=r"test_batch cannot be read .*it asks for (posix\.mkdir|_codecs\.encode)"):
        read("cifar10", tmp_path)
    assert not (tmp_path / "evil").exists()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "cannot be read as a pickle"),
        (b"junk", "cannot be read as a pickle"),
        (published.as_python_2([1]), "holds a list and no dictionary"),
        (published.as_python_2({b"data": b""}), "has no labels"),
        (published.as_python_2({b"data": published.pixels(2, 0), b"labels": [0, 1]}), "has images of shape"),
        (published.as_python_2({b"data": published.pixels(2, 0).reshape(2, -1), b"labels": [0]}), ".* and 1 labels"),
        (
            published.as_python_2({b"data": published.pixels(1, 0).reshape(1, -1), b"labels": [10]}),
            "has labels from 10",
        ),
    ],
    ids=["empty", "junk", "list", "unlabelled", "shape", "count", "label"],
)
def test_damaged_pickles_of_cifar_are_refused(content, said, tmp_path):
    folder = published.make_cifar10_python(tmp_path)
    (folder / "test_batch").write_bytes(content)
    with pytest.raises(UserError, match=f"{folder}/test_batch {said}"):
        read("cifar10", tmp_path)


def test_a_batch_of_cifar_that_is_cut_off_is_refused(tmp_path):
    path = published.make_cifar10(tmp_path) / "test_batch.bin"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(UserError, match=r"36,875 bytes, no multiple of 3,073: it is cut off"):
        read("cifar10", tmp_path)


@pytest.mark.parametrize("count", [1, 12])
def test_svhn_has_the_pixels_of_its_files_and_its_label_10_is_the_digit_0(tmp_path, count):
    published.make_svhn(tmp_path, count)
    dataset = read("svhn", tmp_path)
    assert dataset.class_names() == (list("0123456789") if count > 1 else ["1"])
    for image in dataset.images():
        index = int(image.source.removeprefix("test/"))
        assert image.class_name == str((index + 1) % 10)
        np.testing.assert_array_equal(
            np.asarray(decode(image.data)), published.pixels(count, seed=1)[index].transpose(1, 2, 0)
        )
