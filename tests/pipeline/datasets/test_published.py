"""Datasets read from the files that their authors publish, on small copies of that layout."""

import re
import shutil
from collections import Counter
from functools import partial

import numpy as np
import pytest
from scipy.io import savemat

from pipeline.datasets import dataset_class, make_dataset
from pipeline.datasets._listed import NOT_HERE
from pipeline.errors import UserError
from pipeline.images.packing import PackJob
from tests import published, published_judged
from tests.published import files, found, read

#: kind → what must be said is missing in a folder that is empty
NEEDED = {
    "benthic": ("annotations.json", "fold5", "Benthic.zip"),
    "caltech101": ("101_ObjectCategories",),
    "cars196": ("devkit/cars_meta.mat", "cars_annos.mat"),
    "cifar10": ("test_batch.bin", "batches.meta.txt", "cifar-10-binary.tar.gz"),
    "cifar100": ("test.bin", "fine_label_names.txt", "cifar-100-binary.tar.gz"),
    "cifar10h": ("test_batch.bin", "cifar10h-counts.npy"),
    "cub200": ("images.txt", "image_class_labels.txt", "classes.txt"),
    "dtd": ("test1.txt",),
    "flowers102": ("imagelabels.mat", "setid.mat", "jpg"),
    "imagenet1k_real": ("real.json", "ILSVRC2012_img_val.tar"),
    "lfw": ("lfw.tgz",),
    "mnist": ("t10k-images-idx3-ubyte",),
    "oxford_pets": ("annotations/test.txt", "images"),
    "pig": ("annotations.json", "fold5", "Pig.zip"),
    "sop": ("Ebay_test.txt",),
    "sun397": ("Testing_01.txt", "ClassName.txt"),
    "svhn": ("test_32x32.mat",),
    "treeversity1": ("annotations.json", "fold5", "Treeversity1.zip"),
    "turkey": ("annotations.json", "fold5", "Turkey.zip"),
}
JUDGED = {"benthic", "cifar10h", "imagenet1k_real", "pig", "treeversity1", "turkey"}  # more than a label is known


def make(kind, root):
    """A small copy."""
    if kind not in JUDGED:
        return getattr(published, f"make_{kind}")(root)
    builder = getattr(published_judged, f"make_{kind}", None)
    return builder(root) if builder else published_judged.make_voted(kind, root)


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
    folder = make(kind, tmp_path)
    assert list(read(kind, folder).images()) == list(read(kind, tmp_path).images())


#: kind → where a copy may lie below root: as torchvision unpacks it, or a mirror
PLACES = {
    "caltech101": ("caltech101/101_ObjectCategories", "caltech-101/101_ObjectCategories"),
    "cars196": ("stanford_cars",),
    "cub200": ("CUB_200_2011/CUB_200_2011",),
    "dtd": ("dtd/dtd",),
    "fashion_mnist": ("FashionMNIST/raw",),
    "flowers102": ("flowers-102",),
    "lfw": ("lfw-py/lfw", "lfw-py/lfw_funneled", "lfw-deepfunneled/lfw-deepfunneled"),
    "mnist": ("MNIST/raw",),
    "oxford_pets": ("oxford-iiit-pet",),
    "sop": ("Stanford_Online_Products/Stanford_Online_Products",),
}


@pytest.mark.parametrize(("kind", "place"), [(kind, place) for kind in PLACES for place in PLACES[kind]])
def test_root_may_be_the_folder_that_others_unpacked_it_in(kind, place, tmp_path):
    (tmp_path / "made").mkdir()
    folder = (published.make_mnist if kind == "fashion_mnist" else partial(make, kind))(tmp_path / "made")
    (tmp_path / "root" / place).parent.mkdir(parents=True)
    folder.rename(tmp_path / "root" / place)
    one, two = read(kind, tmp_path / "root"), read(kind, tmp_path / "root" / place)
    assert list(one.images()) == list(two.images())


@pytest.mark.parametrize("kind", ["caltech101", "lfw"])
def test_two_copies_are_not_taken_as_twice_the_classes(kind, tmp_path):
    folder = make(kind, tmp_path)
    shutil.copytree(folder, tmp_path / "faces/cropped")
    folder.rename(tmp_path / "faces/whole")
    with pytest.raises(UserError, match=r"holds faces/cropped/.*not of the form <class>/<image>\. Set dataset\.root"):
        read(kind, tmp_path)
    assert read(kind, tmp_path / "faces/cropped").listing() == read(kind, tmp_path / "faces/whole").listing()


def test_an_archive_that_is_still_packed_is_told_what_is_expected(tmp_path):
    files(tmp_path, ["caltech-101/101_ObjectCategories.tar.gz"])
    with pytest.raises(
        UserError, match=r"1 × no image by its extension\. Expected there: 101_ObjectCategories/<class>"
    ):
        read("caltech101", tmp_path)


@pytest.mark.parametrize("kind", NEEDED)
def test_an_article_is_cited_and_the_parts_add_up(kind):
    about = dataset_class(kind).about
    parts = dict(about.sizes)
    everything = parts.pop("all")
    assert re.search(r"(19|20)\d\d$", about.citation)
    if parts and kind != "sun397":  # of which most images are in neither part
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
    shutil.copy(tmp_path / "one/cars_annos.mat", tmp_path / "two/stanford_cars")  # the list of the other form beside it
    assert found(read("cars196", tmp_path / "two", part="all")) == found(two)
    (tmp_path / "two/stanford_cars/cars_test_annos_withlabels.mat").unlink()
    with pytest.raises(UserError, match=r"stanford_cars has no cars_test_annos_withlabels\.mat\."):
        read("cars196", tmp_path / "two")


def test_a_test_half_of_cars196_without_labels_is_refused(tmp_path):
    folder = published.make_cars196_in_two(tmp_path)
    rows = np.zeros((1, 2), [("bbox_x1", float), ("fname", object)])  # cars_test_annos.mat of the devkit
    rows["fname"] = "00001.jpg"
    savemat(folder / "cars_test_annos_withlabels.mat", {"annotations": rows})
    with pytest.raises(UserError, match=r"withlabels\.mat: annotations has no class: another file of that name"):
        read("cars196", tmp_path)


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


@pytest.mark.parametrize(
    ("kind", "images", "part"),
    [
        ("imagenet1k_real", "val/n*/*.JPEG", {}),
        ("sun397", "SUN397/*/*/sun_*.jpg", {"part": "all"}),
        ("lfw", "lfw/*/*_0002.jpg", {}),
    ],
)
def test_an_image_that_came_while_packing_was_interrupted_is_seen(kind, images, part, tmp_path):
    make(kind, tmp_path)
    image = sorted(tmp_path.glob(images))[0]
    image.rename(tmp_path / "later")
    values = {"kind": kind, "root": str(tmp_path), **part}
    PackJob(make_dataset(values), tmp_path / "packed", kind=kind, min_tars=2).prepare()
    assert PackJob(make_dataset(values), tmp_path / "packed", kind=kind, min_tars=2).plan
    (tmp_path / "later").rename(image)
    with pytest.raises(UserError, match="the dataset has changed since packing began"):
        _ = PackJob(make_dataset(values), tmp_path / "packed", kind=kind, min_tars=2).plan


@pytest.mark.parametrize("kind", [kind for kind in NEEDED if len(dataset_class(kind).about.sizes) > 1])
def test_the_parts_are_parts_of_all_and_have_no_image_in_common(kind, tmp_path):
    make(kind, tmp_path)
    names = [name for name in dataset_class(kind).about.sizes if name != "all"]
    parts = [found(read(kind, tmp_path, part=name)) for name in names]
    everything = found(read(kind, tmp_path, part="all"))
    together = {source: name for part in parts for source, name in part.items()}
    assert sum(map(len, parts)) == len(together)
    assert together.items() <= everything.items()
    assert set(everything) - set(together) == ({"a/abbey/sun_in_no_partition.jpg"} if kind == "sun397" else set())


@pytest.mark.parametrize(("kind", "published"), [("caltech101", 8_677), ("sop", 120_053)])
def test_images_that_a_copy_lacks_are_counted_whatever_is_chosen_of_it(kind, published, tmp_path):
    make(kind, tmp_path)
    whole = read(kind, tmp_path, part="all")
    assert whole.left_out()[NOT_HERE] == published - len(whole)
    assert read(kind, tmp_path, part="all", split="seen").left_out()[NOT_HERE] == published - len(whole)


@pytest.mark.parametrize(
    ("kind", "part"),
    [("caltech101", {"part": "train", "train_per_class": 1}), ("turkey", {"part": "test", "partition": 2})],
)
def test_a_part_whose_size_hangs_on_settings_lacks_nothing_that_is_known(kind, part, tmp_path):
    make(kind, tmp_path)
    assert NOT_HERE not in read(kind, tmp_path, **part).left_out()


def test_oxford_pets_are_called_by_their_breed(tmp_path):
    published.make_oxford_pets(tmp_path)
    assert read("oxford_pets", tmp_path).class_names() == [
        "Abyssinian",
        "Egyptian_Mau",
        "american_bulldog",
        "yorkshire_terrier",
    ]
    assert found(read("oxford_pets", tmp_path, part="trainval"))["american_bulldog_2.jpg"] == "american_bulldog"


def test_flowers_are_called_by_name_in_the_order_of_their_numbers(tmp_path):
    published.make_flowers102(tmp_path)
    dataset = read("flowers102", tmp_path)
    assert len(dataset) == 16
    assert dataset.class_names() == ["pink primrose", "hard-leaved pocket orchid", "canterbury bells", "sweet pea"]
    assert found(dataset)["image_00019.jpg"] == "canterbury bells"


def test_dtd_has_partitions(tmp_path):
    published.make_dtd(tmp_path)
    assert len(read("dtd", tmp_path)) == 6
    assert set(found(read("dtd", tmp_path, partition=2))) == {
        f"{name}/{name}_20.jpg" for name in ("banded", "braided", "woven")
    }
    with pytest.raises(UserError, match=r"dtd has no labels/test3\.txt\."):
        read("dtd", tmp_path, partition=3)


def test_caltech101_leaves_the_background_out_unless_it_is_asked_for(tmp_path):
    published.make_caltech101(tmp_path)
    dataset = read("caltech101", tmp_path)
    assert dataset.class_names() == ["Faces", "accordion", "yin_yang"]
    assert dataset.left_out()["in BACKGROUND_Google, which is no class"] == 32
    assert "BACKGROUND_Google" in read("caltech101", tmp_path, background=True).class_names()


def test_caltech101_draws_so_many_of_each_class_to_train(tmp_path):
    published.make_caltech101(tmp_path)
    train, test = (read("caltech101", tmp_path, part=part) for part in ("train", "test"))
    assert Counter(found(train).values()) == {"Faces": 30, "accordion": 30, "yin_yang": 30}
    assert Counter(found(test).values()) == {"Faces": 2, "accordion": 2, "yin_yang": 2}
    assert train.left_out()["not in train"] == 6
    few = read("caltech101", tmp_path, part="train", train_per_class=5, background=True)
    assert Counter(found(few).values()) == {"BACKGROUND_Google": 5, "Faces": 5, "accordion": 5, "yin_yang": 5}
    assert {name for name in found(few) if "BACK" not in name} < set(found(train)), "fewer are the first of more"
    numbers = {
        name: {source[-8:] for source in found(few) if source.startswith(name)} for name in ("Faces", "yin_yang")
    }
    assert numbers["Faces"] != numbers["yin_yang"], "drawn, not the same numbers of each class"


def test_caltech101_takes_vtabs_split_from_a_list(tmp_path):
    folder = published.make_caltech101(tmp_path)
    said = r"101_ObjectCategories has no caltech101_tfds_test\.txt.*pipeline/datasets/caltech101\.py says how"
    with pytest.raises(UserError, match=said):
        read("caltech101", tmp_path, part="vtab_test")
    listed = ["faces/image_0003.jpg", "Faces/image_0007.jpg", "background_google/image_0001.jpg"]  # TFDS: lower case
    published.text(tmp_path / "caltech101_tfds_test.txt", *listed)
    expected = {"Faces/image_0003.jpg": "Faces", "Faces/image_0007.jpg": "Faces"}
    assert found(read("caltech101", tmp_path, part="vtab_test")) == expected
    background = {"BACKGROUND_Google/image_0001.jpg": "BACKGROUND_Google"}
    assert found(read("caltech101", tmp_path, part="vtab_test", background=True)) == expected | background
    (tmp_path / "caltech101_tfds_test.txt").rename(folder / "caltech101_tfds_train.txt")
    assert found(read("caltech101", tmp_path, part="vtab_train")) == expected
    published.text(folder / "caltech101_tfds_train.txt", "faces/image_0099.jpg")
    with pytest.raises(UserError, match=r"caltech101_tfds_train\.txt lists faces/image_0099\.jpg, which is not in"):
        read("caltech101", tmp_path, part="vtab_train")


def test_sun397_takes_vtabs_split_from_its_lists(tmp_path):
    folder = published.make_sun397(tmp_path)
    with pytest.raises(
        UserError, match=r"SUN397 has no sun397_tfds_te\.txt.*pip download --no-deps tensorflow-datasets"
    ):
        read("sun397", tmp_path, part="vtab_test")
    published.make_vtab_lists_of_sun397(tmp_path)
    parts = [found(read("sun397", tmp_path, part=f"vtab_{part}")) for part in ("train", "val", "test")]
    together = {source: name for part in parts for source, name in part.items()}
    assert sum(map(len, parts)) == len(together)
    everything = found(read("sun397", tmp_path, part="all"))
    assert together.items() < everything.items()
    assert len(everything) == len(together) + 1  # which no list has
    (tmp_path / "sun397_tfds_va.txt").rename(folder / "sun397_tfds_va.txt")
    assert found(read("sun397", tmp_path, part="vtab_val")) == parts[1]


def test_sun397_takes_lists_in_it_beside_it_or_in_a_folder(tmp_path):
    folder = published.make_sun397(tmp_path)
    dataset = read("sun397", tmp_path)
    assert dataset.class_names() == ["abbey", "bakery/shop", "bakery/kitchen"]  # the authors' order
    assert found(dataset)["b/bakery/shop/sun_bb1.jpg"] == "bakery/shop"
    assert len(read("sun397", tmp_path, partition=2)) == 2
    for inside in (folder / "Partitions", folder):
        inside.mkdir(exist_ok=True)
        (tmp_path / "Testing_01.txt").rename(inside / "Testing_01.txt")
        assert found(read("sun397", tmp_path)) == found(dataset)
        (inside / "Testing_01.txt").rename(tmp_path / "Testing_01.txt")
    published.text(folder / "ClassName.txt", "/a/abbey")
    with pytest.raises(UserError, match=r"has no class bakery/shop, in which b/bakery/shop/sun_bb0.jpg lies"):
        read("sun397", tmp_path)


def test_sun397_takes_what_lies_in_the_folders_of_its_classes(tmp_path):
    folder = published.make_sun397(tmp_path)
    before = found(read("sun397", tmp_path, part="all"))
    files(folder, ["b/bakery/shop/@eaDir/sun_aa0.jpg", "b/bakery/shop/.thumbnails/sun_aa0.jpg", "x/sun_aa0.jpg"])
    assert found(read("sun397", tmp_path, part="all")) == before


def test_lfw_takes_people_with_two_photographs(tmp_path):
    published.make_lfw(tmp_path)
    assert read("lfw", tmp_path).class_names() == ["Aaron_Peirsol", "Abdullah_Gul", "Zorica_Radovic"]
    assert len(read("lfw", tmp_path, min_images_per_class=1)) == 10
