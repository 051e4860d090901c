"""What every dataset promises, for every dataset that is found. A new dataset needs one builder here."""

from __future__ import annotations

import dataclasses
import io
import pickle
import re
import struct
import tarfile

import numpy as np
import pytest
from PIL import Image

from pipeline.annotations import load_annotations, save_annotations
from pipeline.datasets import dataset_class, dataset_names, make_dataset, where_keys_are_from
from pipeline.errors import UserError
from pipeline.images.decode import decode
from pipeline.images.packing import PackJob, open_packed
from pipeline.progress import Silent
from tests import published, published_judged

RNG = np.random.default_rng(0)


def png():
    buffer = io.BytesIO()
    Image.fromarray(RNG.integers(0, 256, (5, 4, 3), dtype=np.uint8)).save(buffer, "PNG")
    return buffer.getvalue()


def folders(root, classes=6, count=3):
    for name in (f"animals/kind {i}" for i in range(classes)):
        (root / name).mkdir(parents=True)
        for index in range(count):
            (root / name / f"no.{index} é.png").write_bytes(png())


def class_tars(root):
    for name in (f"n0{i}" for i in range(6)):
        write_tar(root / f"{name}.tar", [(f"{name}_{i}.png", png()) for i in range(3)])


def write_tar(path, members):
    with tarfile.open(path, "w") as tar:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))


def idx(root):
    for name, shape in {"train-images-idx3-ubyte": (20, 5, 4), "train-labels-idx1-ubyte": (20,)}.items():
        values = np.arange(20, dtype=np.uint8) % 10 if len(shape) == 1 else RNG.integers(0, 256, shape, dtype=np.uint8)
        (root / name).write_bytes(struct.pack(f">HBB{len(shape)}I", 0, 8, len(shape), *shape) + values.tobytes())


def webdataset(root, classes=("ant", "bee")):
    for tar in range(2):
        images = [(f"k{tar}{i}", b"%d" % (i % len(classes))) for i in range(4)]
        write_tar(root / f"{tar}.tar", [m for key, cls in images for m in ((f"{key}.png", png()), (f"{key}.cls", cls))])
    (root / "classes.txt").write_text("".join(f"{name}\n" for name in classes))


def index_file(root):
    folders(root)
    rows = [f"{path.relative_to(root)},{path.parent.name}" for path in sorted(root.rglob("*.png"))]
    (root / "index.csv").write_text("\n".join(["path,label", *rows]), encoding="utf-8")


def stamps(root):
    folders(root / "usr/share/tuxpaint/stamps")
    for name in ("symbols/letters/a.png", "animals/kind 0/cartoon/b.png", "animals/kind 1/no_mirror.png"):
        path = root / "usr/share/tuxpaint/stamps" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(png())


def foods(root):
    (root / "package/assets").mkdir(parents=True)
    for number, letter in enumerate("ABCDEF" * 2):
        (root / f"package/assets/{letter}{number:03d}.jpeg").write_bytes(png())


def held_out(root):
    webdataset(root, classes=("ant", "bee", "cat"))
    (root / "keys.txt").write_text("".join(f"k{tar}{i}\n" for tar in range(2) for i in range(3)))


def voted(kind):
    return lambda root: published_judged.make_voted(kind, root)


#: dataset → what makes a small one in an empty folder, and further keys of its config ({root} is the folder)
BUILDERS = {
    "benthic": (voted("benthic"), {}),
    "caltech101": (published.make_caltech101, {}),
    "cars196": (published.make_cars196, {}),
    "cifar10": (published.make_cifar10, {}),
    "cifar100": (published.make_cifar100, {}),
    "cifar10h": (published_judged.make_cifar10h, {}),
    "class_tars": (class_tars, {}),
    "cub200": (published.make_cub200, {}),
    "digit_pairs": (lambda root: None, {"images_per_class": 1}),
    "digits": (lambda root: (root / "three.txt").write_text("0\n4\n7\n"), {"class_list": "{root}/three.txt"}),
    "dtd": (published.make_dtd, {}),
    "fashion_mnist": (idx, {}),
    "flowers102": (published.make_flowers102, {}),
    "part_of_tars": (held_out, {"keys": "{root}/keys.txt", "label_classes": "{root}/classes.txt"}),
    "idx": (idx, {"images": "train-images-idx3-ubyte", "labels": "train-labels-idx1-ubyte"}),
    "ifct": (foods, {}),
    "image_folder": (folders, {}),
    "imagenet1k_real": (published_judged.make_imagenet1k_real, {}),
    "index_file": (index_file, {}),
    "lfw": (published.make_lfw, {}),
    "mnist": (published.make_mnist, {}),
    "msls": (published_judged.make_msls, {"part": "all", "cities": ["cph", "sf", "zurich"]}),
    "openclipart": (lambda root: folders(root / "usr/share/openclipart/png", count=20), {}),
    "oxford_pets": (published.make_oxford_pets, {}),
    "pig": (voted("pig"), {}),
    "sop": (published.make_sop, {}),
    "sun397": (published.make_sun397, {}),
    "svhn": (published.make_svhn, {}),
    "treeversity1": (voted("treeversity1"), {}),
    "turkey": (voted("turkey"), {}),
    "tuxpaint": (stamps, {}),
    "webdataset": (webdataset, {"class_list": "{root}/classes.txt"}),
}
NEEDS_NO_FOLDER = {"digit_pairs", "digits"}  # generated


def values(kind, root):
    extra = {
        key: str(item).format(root=root) if isinstance(item, str) else item for key, item in BUILDERS[kind][1].items()
    }
    return {"kind": kind, "root": str(root), **extra}


@pytest.fixture(params=dataset_names())
def kind(request):
    assert request.param in BUILDERS, f"give {request.param} a builder in {__file__}"
    return request.param


@pytest.fixture
def dataset(kind, tmp_path):
    BUILDERS[kind][0](tmp_path)
    made = make_dataset(values(kind, tmp_path))
    made.check()
    return made


def test_it_says_where_it_comes_from_and_what_it_is_called(kind):
    cls = dataset_class(kind)
    assert cls.about.title
    assert cls.about.source
    assert cls.about.licence
    assert {"name", "root"} <= {field.name for field in dataclasses.fields(cls.Config)}
    assert cls.__doc__
    assert cls.Config.__doc__


def test_making_it_reads_nothing_and_unknown_keys_are_refused(kind, tmp_path):
    make_dataset(values(kind, tmp_path / "not there"))
    with pytest.raises(UserError, match="unknown key"):
        make_dataset({**values(kind, tmp_path), "no_such_key": 1})


def test_what_is_missing_is_said_with_the_place(kind, tmp_path):
    if kind in NEEDS_NO_FOLDER:
        pytest.skip("needs no folder")
    with pytest.raises(UserError, match=re.escape(str(tmp_path / "not there"))) as caught:
        make_dataset(values(kind, tmp_path / "not there")).check()
    assert "dataset." in str(caught.value)  # the key to set, or the command that fills it


def test_images_keep_what_the_base_class_promises(dataset):
    images, classes = list(dataset.images()), dataset.class_names()
    assert len(images) == len(dataset) > 0
    assert len(set(classes)) == len(classes)
    assert len({image.key for image in images}) == len(images)
    for image in images:
        assert re.fullmatch(r"[A-Za-z0-9_/-]+", image.key)
        assert image.class_name in classes
        assert re.fullmatch(r"[a-z]+", image.extension)
        assert decode(image.data).mode == "RGB"
    assert {image.class_name for image in images} == set(classes)


def test_the_order_is_fixed_and_parts_are_parts_of_it(dataset, kind, tmp_path):
    images = list(dataset.images())
    assert list(dataset.images()) == images
    again = make_dataset(values(kind, tmp_path))
    assert list(again.part(3, 7)) == images[3:7]
    assert list(again.part(0, len(images))) == images
    assert again.listing() == dataset.listing()


def test_it_can_be_sent_to_a_worker(dataset):
    images = list(dataset.images())
    assert list(pickle.loads(pickle.dumps(dataset)).images()) == images


def test_it_can_be_packed(dataset, kind, tmp_path):
    if kind == "webdataset":
        assert [unit.samples for unit in open_packed(values(kind, tmp_path)).units] == [4, 4]
        return
    job = PackJob(dataset, tmp_path / "packed", kind=kind, min_tars=3)
    job.prepare()
    for index in job.missing():
        job.run(index, Silent())
    job.finish()
    packed = open_packed(tmp_path / "packed")
    assert packed.class_names == tuple(dataset.class_names())
    assert sum(unit.samples for unit in packed.units) == len(dataset)


def test_what_is_known_beyond_labels_is_of_its_images_and_is_kept_with_the_tars(dataset, kind, tmp_path):
    annotations = dataset.annotations()
    if annotations is None:
        pytest.skip("nothing is known beyond labels")
    keys = [image.key for image in dataset.images()]
    assert sorted(annotations.keys) == sorted(keys)
    assert annotations.votes_NA is not None or annotations.relevance is not None
    if annotations.votes_NA is not None:
        assert (annotations.votes_NA >= 0).all()
        assert len(set(annotations.vote_names)) == len(annotations.vote_names) == annotations.votes_NA.shape[1]
    save_annotations(annotations, tmp_path)
    again = load_annotations(tmp_path).of(keys[::-1][:5])
    expected = annotations.of(keys[::-1][:5])
    assert again.keys == expected.keys
    assert again.vote_names == expected.vote_names
    if expected.votes_NA is not None:
        np.testing.assert_array_equal(again.votes_NA, expected.votes_NA)
    if expected.relevance is not None:
        for name, values in expected.relevance.arrays().items():
            np.testing.assert_array_equal(again.relevance.arrays()[name], values)


def test_splits_where_there_are_any(dataset, kind, tmp_path):
    fields = {field.name for field in dataclasses.fields(dataset.config)}
    if "class_folds" not in fields:
        pytest.skip("no split by classes")
    seen, unseen = (make_dataset({**values(kind, tmp_path), "split": split}) for split in ("seen", "unseen"))
    assert seen.class_names()
    assert unseen.class_names()
    assert set(seen.class_names()).isdisjoint(unseen.class_names())
    assert {image.key for image in seen.images()}.isdisjoint(image.key for image in unseen.images())
    assert len(seen) + len(unseen) == len(dataset)


def test_a_copy_of_what_is_published_is_the_same_images_wherever_it_lies(kind):
    if dataset_class(kind).about.class_count is None:
        pytest.skip("depends on the user's folder")
    extra = {name: value for name, value in BUILDERS[kind][1].items() if name != "class_list"}
    one, two = ({"kind": kind, "root": root, **extra} for root in ("/data", "/scratch/copy"))
    assert where_keys_are_from(one) == where_keys_are_from(two)


def test_a_folder_is_the_same_place_whichever_way_a_path_leads_there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "birds").mkdir()
    (tmp_path / "linked").symlink_to("birds")
    places = {
        where_keys_are_from({"kind": "image_folder", "root": root})
        for root in ("birds", "./birds/", "other/../birds", str(tmp_path / "birds"), "linked")
    }
    assert len(places) == 1
    assert where_keys_are_from({"kind": "image_folder", "root": "other"}) not in places
    assert where_keys_are_from({"kind": "index_file", "root": "birds"}) not in places
