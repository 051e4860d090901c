"""Datasets read from the files that their authors publish, on small copies of that layout."""

import re

import pytest

from pipeline.datasets import dataset_class, make_dataset
from pipeline.errors import UserError
from tests import published

#: kind → what must be said is missing in a folder that is empty
NEEDED = {
    "cars196": ("devkit/cars_meta.mat", "cars_annos.mat"),
    "cub200": ("images.txt", "image_class_labels.txt", "classes.txt"),
    "sop": ("Ebay_test.txt",),
}


def read(kind, root, **config):
    dataset = make_dataset({"kind": kind, "root": str(root), **config})
    dataset.check()
    return dataset


def found(dataset):
    return {image.source: image.class_name for image in dataset.images()}


@pytest.mark.parametrize("kind", NEEDED)
def test_an_empty_folder_and_none_say_what_is_expected_and_where_it_is_published(kind, tmp_path):
    about = dataset_class(kind).about
    (tmp_path / "empty").mkdir()
    for folder in ("empty", "no"):
        with pytest.raises(UserError) as caught:
            read(kind, tmp_path / folder)
        said = str(caught.value)
        for part in (
            str(tmp_path / folder),
            about.source,
            f"{about.class_count:,} classes",
            "dataset.root",
            *NEEDED[kind],
        ):
            assert part in said
        assert "{" not in said


@pytest.mark.parametrize("kind", NEEDED)
def test_root_may_be_the_folder_itself(kind, tmp_path):
    folder = getattr(published, f"make_{kind}")(tmp_path)
    assert list(read(kind, folder).images()) == list(read(kind, tmp_path).images())


@pytest.mark.parametrize("kind", NEEDED)
def test_an_article_is_cited_and_the_parts_add_up(kind):
    about = dataset_class(kind).about
    parts = dict(about.sizes)
    everything = parts.pop("all")
    assert re.search(r"(19|20)\d\d$", about.citation)
    assert sum(parts.values()) == everything


@pytest.mark.parametrize(("kind", "classes"), [("cub200", 8), ("cars196", 8), ("sop", 12)])
def test_train_and_test_share_no_class(kind, classes, tmp_path):
    getattr(published, f"make_{kind}")(tmp_path)
    train, test, both = (read(kind, tmp_path, part=part) for part in ("train", "test", "all"))
    assert len(train.class_names()) == len(test.class_names()) == classes // 2
    assert set(train.class_names()) | set(test.class_names()) == set(both.class_names())
    assert found(train) | found(test) == found(both)
    assert read(kind, tmp_path).listing() == test.listing()  # what is evaluated zero-shot, unless told otherwise


def test_cub200_reads_the_authors_lists(tmp_path, picture):
    published.make_cub200(tmp_path, classes=5)  # an odd number: the middle one is in test
    dataset = read("cub200", tmp_path)
    assert dataset.class_names() == ["003.Bird_3", "004.Bird_4", "005.Bird_5"]
    image = next(image for image in dataset.images() if image.source == "003.Bird_3/Bird_0_3.jpg")
    assert image.data == published.picture(4)
    assert image.class_name == "003.Bird_3"


def test_cars196_in_two_folders_has_the_classes_of_that_in_one(tmp_path):
    published.make_cars196(tmp_path / "one")
    published.make_cars196_in_two(tmp_path / "two")
    one, two = (read("cars196", tmp_path / name, part="all") for name in ("one", "two"))
    assert one.class_names() == two.class_names() == list(published.CARS)  # the authors' order
    assert found(one)["car_ims/000003.jpg"] == found(two)["cars_test/00003.jpg"] == "Acura RL Sedan 2012"
    assert len(two) == 2 * len(one) == 32
    (tmp_path / "two/stanford_cars/cars_test_annos_withlabels.mat").unlink()
    with pytest.raises(UserError, match=r"stanford_cars has no cars_test_annos_withlabels\.mat\."):
        read("cars196", tmp_path / "two")


def test_sop_is_called_by_sort_and_number(tmp_path):
    published.make_sop(tmp_path, classes=2)
    assert found(read("sop", tmp_path)) == {
        "cabinet_final/3_0.JPG": "cabinet/00003",
        "cabinet_final/3_1.JPG": "cabinet/00003",
        "bicycle_final/4_0.JPG": "bicycle/00004",
        "bicycle_final/4_1.JPG": "bicycle/00004",
    }


def test_an_image_that_is_listed_but_missing_is_named(tmp_path):
    folder = published.make_cub200(tmp_path)
    dataset = read("cub200", tmp_path)
    path = folder / "images/005.Bird_5/Bird_0_5.jpg"
    path.unlink()
    with pytest.raises(UserError, match=f"of 8 listed images that were looked for, 1 are missing, such as {path}"):
        read("cub200", tmp_path)
    with pytest.raises(UserError, match=f"{path} is listed, but missing"):
        list(dataset.images())


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("images.txt", b"1 a.jpg\nx b.jpg\n", "line 2: 'x b.jpg' is not of the form <number> <text>"),
        ("images.txt", b"1 a b.jpg\n", "line 1: 'a b.jpg'|line 1: '1 a b.jpg' is not of the form"),
        ("images.txt", b"\xff\xfe", "is no text"),
        ("images.txt", b"", "no images are taken"),
        ("classes.txt", b"1 001.Bird_1\n", "has no class 2, which another list names"),
        ("image_class_labels.txt", b"2 1\n", "has no image 1, which another list names"),
    ],
)
def test_lists_that_are_damaged_are_refused(tmp_path, name, content, said):
    folder = published.make_cub200(tmp_path)
    (folder / name).write_bytes(content)
    with pytest.raises(UserError, match=said) as caught:
        read("cub200", tmp_path)
    assert str(folder) in str(caught.value)


def test_a_damaged_file_of_matlab_is_refused(tmp_path):
    published.make_cars196(tmp_path)
    path = tmp_path / "cars_annos.mat"
    whole = path.read_bytes()
    for content in (b"", b"not MATLAB" * 50, whole[: len(whole) // 2]):
        path.write_bytes(content)
        with pytest.raises(UserError, match=f"{path} (cannot be read|has no variable)"):
            read("cars196", tmp_path)


def test_the_kept_listing_is_made_anew_when_a_list_changes(tmp_path):
    folder = published.make_cub200(tmp_path)
    first = read("cub200", tmp_path).fingerprint()
    with (folder / "images.txt").open("a") as file:
        file.write("# one line more\n")
    assert read("cub200", tmp_path).fingerprint() != first
