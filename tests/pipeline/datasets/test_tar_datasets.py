"""Tars of one class each, and tars that are WebDataset already."""

import errno
import io
import os
import shutil
import tarfile
from pathlib import Path

import pytest

from pipeline.datasets import class_tars as module
from pipeline.datasets import make_dataset
from pipeline.errors import UserError
from pipeline.images.archive import BrokenTar
from pipeline.images.packing import PackJob, open_packed
from pipeline.progress import Silent


def write_tar(path, members):
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as tar:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))


# -- class tars


@pytest.fixture
def class_tars(tmp_path, picture):
    write_tar(tmp_path / "n02.tar", [(f"n02_{i}.JPEG", picture(i, "JPEG")) for i in range(5)])
    write_tar(
        tmp_path / "n01.tar", [("sub/n01_1.JPEG", picture(9, "JPEG")), ("list.txt", b""), ("n01.v2.png", picture(8))]
    )
    return tmp_path


def test_tar_is_class(class_tars, picture):
    dataset = make_dataset({"kind": "class_tars", "root": str(class_tars)})
    dataset.check()
    assert dataset.class_names() == ["n01", "n02"]
    images = {image.key: image for image in dataset.images()}
    assert set(images) == {"n01/sub/n01_1", "n01/n01_v2", *(f"n02/n02_{i}" for i in range(5))}
    assert images["n02/n02_3"].data == picture(3, "JPEG")
    assert images["n01/n01_v2"].data == picture(8)
    assert images["n01/sub/n01_1"].extension == "jpeg"
    assert dataset.left_out() == {"no image by its extension": 1}


def test_the_headers_are_read_once_for_all_processes(class_tars, tmp_path, monkeypatch):
    passes = []
    real = module.members
    monkeypatch.setattr(module, "members", lambda path: passes.append(path.name) or real(path))

    def job():
        dataset = make_dataset({"kind": "class_tars", "root": str(class_tars)})
        return PackJob(dataset, tmp_path / "packed", kind="class_tars", min_tars=2)

    job().prepare()
    assert passes == ["n01.tar", "n02.tar"]
    job().prepare()
    second = job()
    for index in second.missing():
        second.run(index, Silent())
    second.finish()
    assert passes == ["n01.tar", "n02.tar"]
    assert second.dataset.left_out() == {"no image by its extension": 1}
    write_tar(class_tars / "n03.tar", [])
    len(job().dataset)
    assert len(passes) == 5  # the source has changed


def test_a_class_list_of_class_tars(class_tars, tmp_path):
    (tmp_path / "classes.txt").write_text("n02\nn09\n")
    dataset = make_dataset({"kind": "class_tars", "root": str(class_tars), "class_list": str(tmp_path / "classes.txt")})
    dataset.check()
    assert dataset.class_names() == ["n02"]
    assert len(dataset) == 5
    assert dataset.left_out() == {"class that is not in dataset.class_list": 2, "no image by its extension": 1}


def test_a_broken_class_tar_is_named(class_tars):
    path = class_tars / "n02.tar"
    path.write_bytes(path.read_bytes()[:1500])
    with pytest.raises(BrokenTar, match=r"n02\.tar: broken at byte 1500"):
        make_dataset({"kind": "class_tars", "root": str(class_tars)}).check()


def test_what_a_mac_puts_beside_a_tar_is_no_class(class_tars):
    before = make_dataset({"kind": "class_tars", "root": str(class_tars)}).listing()
    (class_tars / "._n01.tar").write_bytes(b"\0\5\x16\7\0\2\0\0Mac OS X" + bytes(4000))
    dataset = make_dataset({"kind": "class_tars", "root": str(class_tars)})
    dataset.check()
    assert dataset.listing() == before


def test_what_a_system_puts_into_a_class_tar_is_no_image(tmp_path, picture):
    image = picture(0, "JPEG")
    names = (
        "./n03_1.JPEG",
        "./._n03_1.JPEG",
        "@eaDir/n03_1.JPEG/SYNOPHOTO_THUMB_M.jpg",
        ".thumbs/a.jpg",
        "a/n03_2.JPEG",
    )
    write_tar(tmp_path / "n03.tar", [(name, image) for name in names])  # tar of a Mac: a ._ beside each file
    dataset = make_dataset({"kind": "class_tars", "root": str(tmp_path)})
    assert sorted(image.source for image in dataset.images()) == ["n03/./n03_1.JPEG", "n03/a/n03_2.JPEG"]
    assert dataset.left_out() == {"hidden": 2, "folder of the system, such as @eaDir": 1}


def test_no_class_tars(tmp_path):
    with pytest.raises(UserError, match=r"no \*\.tar in"):
        make_dataset({"kind": "class_tars", "root": str(tmp_path)}).check()


# -- webdataset


@pytest.fixture
def tars(tmp_path, picture):
    root = tmp_path / "tars"
    for number in range(3):
        members = []
        for i in range(number + 1):
            members += [(f"s{number}{i}.png", picture(10 * number + i)), (f"s{number}{i}.cls", b"%d" % (i % 2))]
        write_tar(root / f"train-{number}.tar", members)
    write_tar(root / "val-0.tar", [("v.png", picture(99)), ("v.cls", b"7"), ("lost.cls", b"0")])
    (tmp_path / "classes.txt").write_text("ant\nbee\n")
    return {"kind": "webdataset", "root": str(root), "class_list": str(tmp_path / "classes.txt")}


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("*.tar", ["train-0.tar", "train-1.tar", "train-2.tar", "val-0.tar"]),
        ("train-{0..2}.tar", ["train-0.tar", "train-1.tar", "train-2.tar"]),
        ("{val,train}-*.tar", ["val-0.tar", "train-0.tar", "train-1.tar", "train-2.tar"]),
        ("train-1.tar", ["train-1.tar"]),
    ],
)
def test_patterns(tars, pattern, names):
    dataset = make_dataset({**tars, "tars": pattern})
    dataset.check()
    assert [path.name for path in dataset.tars()] == names


@pytest.mark.parametrize("pattern", ["*.tar", "*train-*.tar"])
def test_what_a_mac_puts_beside_a_tar_is_no_tar(tars, pattern):
    before = make_dataset({**tars, "tars": pattern}).tars()
    (Path(tars["root"]) / "._train-0.tar").write_bytes(b"\0\5\x16\7\0\2\0\0Mac OS X" + bytes(4000))
    assert make_dataset({**tars, "tars": pattern}).tars() == before


def test_samples(tars):
    dataset = make_dataset(tars)
    assert dataset.class_names() == ["ant", "bee"]
    found = {image.key: image.class_name for image in dataset.images()}
    assert found == {"s00": "ant", "s10": "ant", "s11": "bee", "s20": "ant", "s21": "bee", "s22": "ant", "v": None}
    assert len(dataset) == 7


def test_packed_without_a_manifest_is_counted_by_headers(tars):
    packed = open_packed({**tars, "tars": "train-*.tar"})
    assert [(unit.name, unit.samples) for unit in packed.units] == [
        ("train-0.tar", 1),
        ("train-1.tar", 2),
        ("train-2.tar", 3),
    ]
    assert [path.stat().st_size for path in packed.paths] == [unit.bytes for unit in packed.units]
    assert (packed.class_names, packed.longest_key, packed.max_samples) == (("ant", "bee"), 3, 3)


def test_a_class_list_by_name(tars):
    dataset = make_dataset({**tars, "class_list": "imagenet1k"})
    dataset.check()
    assert dataset.class_names()[:2] == ["n01440764", "n01443537"]
    assert open_packed({**tars, "class_list": "imagenet1k"}).class_names == tuple(dataset.class_names())


def test_tars_that_are_missing_or_broken_spoil_no_other(tars, tmp_path):
    values = {**tars, "tars": "train-{0..3}.tar"}
    make_dataset(values).check()
    cut = tmp_path / "tars" / "train-2.tar"
    cut.write_bytes(cut.read_bytes()[:1000])
    packed = open_packed(values)
    assert [(unit.name, unit.samples) for unit in packed.units] == [
        ("train-0.tar", 1),
        ("train-1.tar", 2),
        ("train-2.tar", None),
        ("train-3.tar", None),
    ]
    assert packed.max_samples == 4  # room for fuller ones
    with pytest.raises(BrokenTar, match=r"train-2\.tar: broken at byte 1000"):
        open_packed({**tars, "tars": "train-{2..3}.tar"})


def test_what_is_missing_is_said(tars, tmp_path):
    for wrong, said in [
        ({"tars": "x-*.tar"}, r"no x-\*\.tar in"),
        ({"tars": "x-{0..5}.tar"}, r"all 6 tars are missing, e\.g\. .*x-0\.tar"),
        ({"tars": "{train-*,val-0,train-1}.tar"}, r"names 1 of the tars twice, e\.g\. .*train-1\.tar"),
        (
            {"tars": "pipe:aws s3 cp s3://b/0.tar -"},
            r"dataset\.tars=pipe:.*: commands are not run\. .* as dataset\.root",
        ),
        ({"tars": "s3://b/w/{0..3}.tar"}, r"Write dataset\.root=s3://b/w dataset\.tars=\{0\.\.3\}\.tar"),
        ({"class_list": None}, r"no class list\. Set dataset\.class_list"),
        ({"class_list": str(tmp_path / "none.txt")}, r"dataset\.class_list: no file there, .*unknown class list"),
        ({"class_list": "imagenet21k_googl"}, r"Did you mean 'imagenet21k_google'"),
        ({"root": str(tmp_path / "none")}, "no folder at"),
    ]:
        with pytest.raises(UserError, match=said):
            make_dataset({**tars, **wrong}).check()
    (tmp_path / "twice.txt").write_text("ant\nant\n")
    with pytest.raises(UserError, match=r"twice\.txt: 'ant' stands at position 0 and again at 1"):
        make_dataset({**tars, "class_list": str(tmp_path / "twice.txt")}).check()


def test_another_tar_in_the_place_of_one_whose_headers_were_read_is_refused(tars, tmp_path):
    packed = open_packed({**tars, "tars": "train-*.tar"})
    shutil.copy(tmp_path / "tars" / "train-2.tar", tmp_path / "tars" / "train-1.tar")
    assert len(list(packed.samples(2))) == 3
    with pytest.raises(UserError, match=r"train-1\.tar: another tar lies in its place: 3 samples in"):
        list(packed.samples(1))


@pytest.mark.parametrize("number", [errno.EACCES, errno.EIO])
def test_a_tar_that_the_system_does_not_give_spoils_no_other(number, tars, monkeypatch):
    def refuse(self, *arguments, **named):
        if self.name == "train-1.tar":
            raise OSError(number, os.strerror(number), str(self))
        return plain(self, *arguments, **named)

    plain = Path.open
    monkeypatch.setattr(Path, "open", refuse)
    packed = open_packed({**tars, "tars": "train-*.tar"})
    assert [unit.samples for unit in packed.units] == [1, None, 3]
    assert len(list(packed.samples(2))) == 3
    with pytest.raises(UserError, match=rf"train-1\.tar: cannot be read \({os.strerror(number)}\)"):
        list(packed.samples(1))


def test_too_few_file_descriptors_are_no_fault_of_a_tar(tars, monkeypatch):
    def refuse(self, *arguments, **named):
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), str(self))

    packed = open_packed({**tars, "tars": "train-*.tar"})
    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(OSError, match="Too many open files"):
        list(packed.samples(1))
