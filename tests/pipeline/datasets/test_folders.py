"""Folders of images, and the clip art's package."""

import errno
import os
from pathlib import Path

import pytest

from pipeline.datasets import make_dataset
from pipeline.datasets._listed import ALSO_SEEN
from pipeline.errors import UserError


def folder(root, **config):
    return make_dataset({"kind": "image_folder", "root": str(root), **config})


def test_folder_is_class_and_bytes_are_the_files_own(tree, picture):
    root = tree({"cats": 2, "dogs/small": 2, "dogs": 1})
    dataset = folder(root)
    dataset.check()
    assert dataset.class_names() == ["cats", "dogs", "dogs/small"]
    assert len(dataset) == 5
    for image in dataset.images():
        assert image.data == (root / image.source).read_bytes()
        assert image.source == f"{image.class_name}/{image.source[-5:]}"
        assert image.key == image.source.removesuffix(".png")


def test_only_images_count_and_the_rest_is_counted(tree, picture):
    root = tree({"cats": 2})
    (root / "cats" / "UPPER.JPEG").write_bytes(picture(9, "JPEG"))
    (root / "cats" / "notes.txt").write_text("x")
    (root / "cats" / "._0.png").write_bytes(b"mac")
    (root / "loose.png").write_bytes(picture(8))
    (root / "cats" / "gone.png").symlink_to(root / "nowhere.png")
    (root / ".git").mkdir()
    dataset = folder(root)
    assert sorted(image.source for image in dataset.images()) == ["cats/0.png", "cats/1.png", "cats/UPPER.JPEG"]
    assert {image.extension for image in dataset.images()} == {"png", "jpeg"}
    assert dataset.left_out() == {
        "no image by its extension": 1,
        "hidden": 2,
        "in no class folder": 1,
        "broken link, or no regular file": 1,
    }


def test_links_to_files_and_folders_are_followed_but_not_in_circles(tree):
    root = tree({"cats": 2})
    other = tree({"birds": 3}, root="elsewhere")
    (root / "birds").symlink_to(other / "birds")
    (root / "cats" / "linked.png").symlink_to(other / "birds" / "0.png")
    (root / "cats" / "up").symlink_to(root)
    dataset = folder(root)
    assert dataset.class_names() == ["birds", "cats"]
    assert len(dataset) == 6
    assert dataset.left_out() == {"folder that links to one above it": 1}


@pytest.mark.parametrize("link", [os.symlink, os.link])
def test_a_picture_of_a_seen_class_is_not_unseen_whatever_kind_of_link(tree, link):
    root = tree({f"c{i}": 3 for i in range(6)})
    seen, unseen = (folder(root, split=split).class_names()[0] for split in ("seen", "unseen"))
    before = len(folder(root, split="unseen"))
    link(root / seen / "0.png", root / unseen / "twin.png")
    dataset = folder(root, split="unseen")
    assert len(dataset) == before
    assert dataset.left_out() == {ALSO_SEEN: 1}
    assert len(folder(root)) == 19


def test_what_is_missing_is_said(tmp_path, tree):
    with pytest.raises(UserError, match=r"image_folder: no folder at .*nowhere\. Set dataset\.root"):
        folder(tmp_path / "nowhere").check()
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="no images in class folders below"):
        folder(tmp_path / "empty").check()
    with pytest.raises(UserError, match="2 × class of fewer than 5 images"):
        folder(tree({"cats": 2}), min_images_per_class=5).check()


@pytest.mark.parametrize("inside", ["usr/share/openclipart/png", ""])
def test_openclipart_finds_its_folder_in_the_package_or_itself(tree, inside):
    tree({f"{inside}/animals/birds".strip("/"): 20, f"{inside}/rare".strip("/"): 19})
    dataset = make_dataset({"kind": "openclipart", "root": str(tree({}))})
    dataset.check()
    assert dataset.class_names() == ["animals/birds"]
    assert dataset.left_out() == {"class of fewer than 20 images": 19}
    assert {image.key.rpartition("/")[0] for image in dataset.images()} == {"animals/birds"}


def test_openclipart_says_how_to_get_it(tmp_path):
    with pytest.raises(UserError, match=r"apt-get download openclipart-png && dpkg-deb -x"):
        make_dataset({"kind": "openclipart", "root": str(tmp_path / "no")}).check()


def test_a_file_that_the_system_does_not_give_is_named_and_the_others_can_be_read(tree, monkeypatch):
    dataset = folder(tree({"cats": 2, "dogs": 2}))
    sources = [image.source for image in dataset.images()]
    plain = Path.read_bytes

    def refuse(self):
        if self.name == "1.png" and self.parent.name == "cats":
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(self))
        return plain(self)

    monkeypatch.setattr(Path, "read_bytes", refuse)
    place = sources.index("cats/1.png")
    assert [image.source for image in dataset.part(0, place)] == sources[:place]
    with pytest.raises(UserError, match=r"image_folder: cats/1\.png cannot be read \(Permission denied\)"):
        list(dataset.part(place, place + 1))
    assert [image.source for image in dataset.part(place + 1, 4)] == sources[place + 1 :]


def test_folders_of_the_system_are_no_classes(tree, picture):
    root = tree({"cats": 2, "dogs": 1})
    for name in (
        "cats/@eaDir/0.png/SYNOPHOTO_THUMB_M.png",  # a thumbnail in a folder that is called as the image
        "#recycle/cats/0.png",
        "$RECYCLE.BIN/S-1-5/0.png",
        "lost+found/0.png",
        "__MACOSX/cats/0.png",
        "__MACOSX/cats/._0.png",
    ):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(picture(0))
    dataset = folder(root)
    assert sorted(image.source for image in dataset.images()) == ["cats/0.png", "cats/1.png", "dogs/0.png"]
    assert dataset.left_out() == {"folder of the system, such as @eaDir": 5}


@pytest.mark.parametrize("above", ["", "birds/"])
@pytest.mark.parametrize("split", ["all", "seen", "unseen"])
def test_a_class_in_two_parts_is_refused(tree, above, split):
    root = tree({f"{above}{part}/{name}": 1 for part in ("Train", "val") for name in ("owl", "robin", "wren")})
    with pytest.raises(UserError, match=rf"in .*, {above}val/owl and {above}Train/owl are one class in two parts"):
        folder(root, split=split).check()
    parts = [folder(root / above / part, split=split) for part in ("Train", "val")]
    assert parts[0].class_names() == parts[1].class_names()


@pytest.mark.parametrize("above", ["", "birds/"])
def test_a_part_without_classes_is_no_class(tree, above):
    root = tree({f"{above}train/{name}": 1 for name in ("owl", "robin")} | {f"{above}test": 3})
    with pytest.raises(UserError, match=rf"in .*, {above}test holds images beside {above}train/owl: a part"):
        folder(root).check()
    folder(root / above / "train").check()


def test_parts_that_share_no_class_are_no_parts(tree):
    root = tree({"train/engine": 1, "test/tube": 1, "car/test": 1, "car": 1, "rail/train": 1})
    dataset = folder(root)
    dataset.check()
    assert len(dataset.class_names()) == 5
