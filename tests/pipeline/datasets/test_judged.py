"""Datasets of which more is known than one label an image: votes, several labels, places; and held-out keys."""

import json
import shutil

import numpy as np
import pytest
from sklearn.datasets import load_digits

from pipeline.annotations import FILE as ANNOTATIONS
from pipeline.class_lists import class_list
from pipeline.datasets import dataset_class, make_dataset
from pipeline.datasets._listed import NOT_HERE
from pipeline.datasets._voted import read_votes
from pipeline.errors import UserError
from pipeline.held_out import held_out
from pipeline.images.decode import decode
from pipeline.images.manifest import packed_annotations, verify_manifest
from pipeline.images.packing import PackJob
from pipeline.progress import Silent
from tests import published, published_judged
from tests.contracts.test_datasets import png, webdataset, write_tar
from tests.published import found, read


def known(dataset):
    """The annotations by the source of the image."""
    sources = {image.key: image.source for image in dataset.images()}
    annotations = dataset.annotations()
    return [sources[key] for key in annotations.keys], annotations


# -- votes


def test_the_label_is_the_class_with_most_votes_and_the_votes_are_kept(tmp_path):
    published_judged.make_voted("turkey", tmp_path)
    dataset = read("turkey", tmp_path)
    assert len(dataset) == 6  # fold 2
    assert dataset.class_names() == ["head_injury", "not_injured", "plumage_injury"]
    sources, annotations = known(dataset)
    votes = dict(zip(sources, annotations.votes_NA.tolist(), strict=True))
    assert votes["fold2/2_00.png"] == [3, 1, 0]
    assert votes["fold2/2_05.png"] == [1, 0, 3]
    assert found(dataset)["fold2/2_05.png"] == "plumage_injury"


@pytest.mark.parametrize(
    ("partition", "val", "test", "train"),
    [(1, {1}, {2}, {3, 4, 5}), (2, {2}, {3}, {1, 4, 5}), (5, {5}, {1}, {2, 3, 4})],
)
def test_voted_parts_are_the_folds_of_a_slice(partition, val, test, train, tmp_path):
    published_judged.make_voted("turkey", tmp_path)
    for part, folds in {"val": val, "test": test, "train": train, "all": {1, 2, 3, 4, 5}}.items():
        sources = found(read("turkey", tmp_path, part=part, partition=partition))
        assert {source.partition("/")[0] for source in sources} == {f"fold{fold}" for fold in folds}
        assert len(sources) == 6 * len(folds)


@pytest.mark.parametrize(
    ("kind", "val", "test"),
    [("treeversity1", 1820, 1912), ("benthic", 907, 955), ("pig", 1947, 2129), ("turkey", 1384, 1761)],
)
def test_voted_parts_have_the_sizes_that_url_draws_crops_for(kind, val, test):
    """Its code comes with the crops of each validation and test set, in files called by the number of images."""
    sizes = dataset_class(kind).about.sizes
    assert (sizes["val"], sizes["test"]) == (val, test)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is no list of annotators"),
        (b"{}", "no images are taken"),
        (b'[{"name": "a"}]', "is no list of annotators"),
        (b'[{"annotations": [{"image_path": "Pig/fold3/a.png", "class_label": "cow"}]}]', "has the class 'cow'"),
        (b'[{"annotations": [{"image_path": "a.png", "class_label": "2_short"}]}]', "'a.png' is not of the form"),
        (b'[{"annotations": [{"image_path": "P/../a.png", "class_label": "2_short"}]}]', "is not of the form"),
    ],
)
def test_votes_that_are_damaged_are_refused(content, said, tmp_path):
    folder = published_judged.make_voted("pig", tmp_path)
    (folder / "annotations.json").write_bytes(content)
    read_votes.cache_clear()
    with pytest.raises(UserError, match=said):
        read("pig", tmp_path)
    read_votes.cache_clear()


@pytest.mark.parametrize("place", ["", "cifar-10h-master/data", "cifar-10-batches-bin"])
def test_cifar10h_has_the_votes_of_its_images(place, tmp_path):
    published_judged.make_cifar10h(tmp_path)
    (tmp_path / place).mkdir(parents=True, exist_ok=True)
    (tmp_path / "cifar10h-counts.npy").rename(tmp_path / place / "cifar10h-counts.npy")
    sources, annotations = known(read("cifar10h", tmp_path))
    votes = dict(zip(sources, annotations.votes_NA, strict=True))
    assert votes["test_batch/00003"].tolist() == [0, 0, 0, 4, 1, 0, 0, 0, 0, 0]
    assert annotations.vote_names == tuple(published.CIFAR10)


def test_cifar10h_has_the_images_of_cifar10(tmp_path):
    published_judged.make_cifar10h(tmp_path)
    assert list(read("cifar10h", tmp_path).images()) == list(read("cifar10", tmp_path).images())


def test_votes_that_do_not_fit_the_images_are_refused(tmp_path):
    published_judged.make_cifar10h(tmp_path)
    np.save(tmp_path / "cifar10h-counts.npy", np.ones((11, 10)))
    with pytest.raises(UserError, match="12 images of 10 classes are expected"):
        read("cifar10h", tmp_path)
    (tmp_path / "cifar10h-counts.npy").write_bytes(b"junk")
    with pytest.raises(UserError, match="cannot be read as an array"):
        read("cifar10h", tmp_path)
    (tmp_path / "cifar10h-counts.npy").unlink()
    with pytest.raises(UserError, match=r"no cifar10h-counts\.npy and no cifar10h-probs\.npy"):
        read("cifar10h", tmp_path)


def test_packed_votes_that_are_gone_or_damaged_are_an_error_and_are_written_again(tmp_path):
    published_judged.make_voted("turkey", tmp_path / "data")
    job = PackJob(read("turkey", tmp_path / "data"), tmp_path / "packed", kind="turkey", min_tars=2)
    job.prepare()
    for index in job.missing():
        job.run(index, Silent())
    job.finish()
    path = tmp_path / "packed" / ANNOTATIONS
    whole = path.read_bytes()
    assert packed_annotations(tmp_path / "packed").votes_NA.shape == (6, 3)
    for content in (None, whole[:-9], whole.replace(b"plumage", b"feather")[:-1] + b"x"):
        path.unlink()
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(UserError, match=r"is not what was written\. Run: submit verify stage=pack"):
            packed_annotations(tmp_path / "packed")
        assert "is not what was written" in verify_manifest(tmp_path / "packed")
        assert job.missing() == []  # the tars are kept
        job.finish()
        assert path.read_bytes() == whole
    assert verify_manifest(tmp_path / "packed") == ""


# -- several labels an image


def test_both_layouts_of_imagenet_give_the_same(tmp_path):
    published_judged.make_imagenet1k_real(tmp_path / "one")
    published_judged.make_imagenet1k_real(tmp_path / "two", flat=True)
    one, two = (read("imagenet1k_real", tmp_path / name) for name in ("one", "two"))
    assert [(image.key, image.class_name) for image in one.images()] == [
        (image.key, image.class_name) for image in two.images()
    ]
    wnids = class_list("imagenet1k", "here")
    classes = {image.key: image.class_name for image in two.images()}
    assert classes["ILSVRC2012_val_00000004"] == wnids[1]
    (tmp_path / "two/ILSVRC2012_devkit_t12/data/meta.mat").unlink()
    with pytest.raises(UserError, match=r"there is no meta\.mat"):
        read("imagenet1k_real", tmp_path / "two")


def test_images_that_are_called_by_their_class_need_no_devkit(tmp_path):
    published_judged.make_imagenet1k_real(tmp_path)
    before = read("imagenet1k_real", tmp_path)
    expected = [(image.key, image.class_name, image.data) for image in before.images()]
    for path in list((tmp_path / "val").rglob("*.JPEG")):  # as Hugging Face's archive has them
        path.rename(tmp_path / "val" / f"{path.stem}_{path.parent.name}.JPEG")
    after = read("imagenet1k_real", tmp_path)
    assert [(image.key, image.class_name, image.data) for image in after.images()] == expected
    named = next((tmp_path / "val").glob("*.JPEG"))
    named.rename(named.with_name("ILSVRC2012_val_00000001_n00000001.JPEG"))
    with pytest.raises(UserError, match="n00000001 is none of the 1,000 classes"):
        read("imagenet1k_real", tmp_path)


@pytest.mark.parametrize("place", ["", "ILSVRC/Data/CLS-LOC/val"])
def test_kaggles_copy_needs_no_devkit(place, tmp_path):
    published_judged.make_imagenet1k_real(tmp_path)
    expected = [(image.key, image.class_name, image.data) for image in read("imagenet1k_real", tmp_path).images()]
    images = tmp_path / "ILSVRC/Data/CLS-LOC/val"
    images.mkdir(parents=True)
    for path in (tmp_path / "val").rglob("*.JPEG"):
        path.rename(images / path.name)
    shutil.rmtree(tmp_path / "val")
    wnids = class_list("imagenet1k", "here")
    rows = [f"ILSVRC2012_val_{n:08d},{wnids[n % 3]} 85 1 499 272 {wnids[n % 3]} 1 1 2 2 " for n in range(50_000, 0, -1)]
    published.text(tmp_path / "LOC_val_solution.csv", "ImageId,PredictionString", *rows)
    (tmp_path / "real.json").rename(tmp_path / place / "real.json")
    dataset = read("imagenet1k_real", tmp_path / place)
    assert [(image.key, image.class_name, image.data) for image in dataset.images()] == expected
    published.text(tmp_path / "LOC_val_solution.csv", "ImageId,PredictionString", *rows[1:])
    with pytest.raises(UserError, match="has 1 images not, such as ILSVRC2012_val_00050000"):
        read("imagenet1k_real", tmp_path / place)


def test_an_image_that_was_copied_into_the_folder_of_its_class_counts_once(tmp_path, monkeypatch):
    published_judged.make_imagenet1k_real(tmp_path)
    monkeypatch.chdir(tmp_path)  # a root that is not absolute
    before = read("imagenet1k_real", ".").listing()
    paths = list((tmp_path / "val").rglob("*.JPEG"))
    for path in paths:
        shutil.copy(path, tmp_path / "val")
    dataset = read("imagenet1k_real", ".")
    assert dataset.listing() == before
    assert dataset.left_out() == {"the same image lies in a folder of its class": 6, NOT_HERE: 49_994}
    other = next(path.parent for path in paths if path.parent != paths[0].parent)
    shutil.copy(paths[0], other)
    with pytest.raises(UserError, match=r"has one image twice, n\d+/.*\.JPEG and n\d+/.*\.JPEG\. Remove one"):
        read("imagenet1k_real", ".")


def test_images_that_share_a_new_label_are_relevant_and_one_without_is_not_judged(tmp_path):
    published_judged.make_imagenet1k_real(tmp_path)
    annotations = read("imagenet1k_real", tmp_path).annotations()
    order = annotations.of([f"ILSVRC2012_val_{number:08d}" for number in (1, 2, 3, 4, 7)])
    assert order.relevance.asked_N.tolist() == [False, True, True, True, True]
    assert order.relevance.counts().tolist() == [0, 1, 1, 1, 1]  # 2 and 7 are skis, 3 and 4 the same dog
    assert order.votes_NA.sum(axis=1).tolist() == [0, 2, 1, 2, 1]
    assert order.vote_names[795] == "n04228054"


def test_new_labels_that_are_not_whole_are_refused(tmp_path):
    published_judged.make_imagenet1k_real(tmp_path)
    for content, said in (
        (json.dumps([[1]] * 10), "has 10 images"),
        ("[1]", "is no list of lists"),
        ("", "is no list"),
    ):
        folder = tmp_path / str(len(content))
        folder.mkdir()
        (tmp_path / "val").rename(folder / "val")
        (folder / "real.json").write_text(content)
        with pytest.raises(UserError, match=said):
            read("imagenet1k_real", folder)
        (folder / "val").rename(tmp_path / "val")


# -- places


def test_a_photograph_of_the_database_within_25_metres_is_relevant(tmp_path):
    published_judged.make_msls(tmp_path)
    dataset = read("msls", tmp_path)
    assert dataset.left_out() == {"not of the subtask all": 1, "panorama": 1}
    assert set(dataset.class_names()) == {"cph", "sf"}
    sources, annotations = known(dataset)
    names = [source.rpartition("/")[2].removesuffix(".jpg") for source in sources]
    relation = annotations.relevance
    counts = dict(zip(names, relation.counts().tolist(), strict=True))
    # at 25 m it is near enough, at 26 m not; the same place in another city is another place
    assert {name: count for name, count in counts.items() if "-q_" in name} == {
        "cph-q_0": 1,
        "cph-q_1": 1,
        "cph-q_3": 0,
        "sf-q_0": 2,
    }
    row = {name: place for place, name in enumerate(names)}
    pairs = [("cph-q_0", "cph-d_0"), ("cph-q_0", "cph-d_1"), ("cph-q_0", "sf-d_0"), ("sf-q_0", "sf-d_0")]
    near = relation.relevant(np.array([row[a] for a, _ in pairs]), np.array([row[b] for _, b in pairs]))
    assert near.tolist() == [True, False, False, True]
    assert [name for name, asked in zip(names, relation.asked_N, strict=True) if asked] == [
        n for n in names if "-q" in n
    ]


def test_msls_says_what_is_missing_and_what_it_does_not_have(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=r"no cph/query/postprocessed\.csv.*www\.mapillary\.com"):
        read("msls", tmp_path / "empty")
    published_judged.make_msls(tmp_path)
    assert set(read("msls", tmp_path, cities=["sf"]).class_names()) == {"sf"}
    with pytest.raises(UserError, match=r"dataset\.cities: miami are not of the part"):
        read("msls", tmp_path, cities=["miami"])
    path = tmp_path / "train_val/sf/query/raw.csv"
    path.write_text(path.read_text() + "1,other,0,0,0,0,False\n")
    with pytest.raises(UserError, match="are not of the same photographs"):
        make_dataset({"kind": "msls", "root": str(tmp_path / "train_val/../train_val"), "cities": ["sf"]}).check()


# -- held-out keys


def test_the_share_that_training_holds_out_and_the_keys_of_a_file(tmp_path):
    webdataset(tmp_path)
    common = {"label_classes": f"{tmp_path}/classes.txt"}
    keys = [f"k{tar}{index}" for tar in range(2) for index in range(4)]
    kept = {key for key, keep in zip(keys, held_out(np.array(keys, bytes), 0.5), strict=True) if keep}
    assert 0 < len(kept) < 8
    dataset = read("part_of_tars", tmp_path, share=0.5, **common)
    assert {source.split("/")[1].split(".")[0] for source in found(dataset)} == kept
    (tmp_path / "keys.txt").write_text("k00\nk13\nk99\n")
    with pytest.raises(UserError, match=r"1 of the 3 keys in .*keys\.txt are in no tar, such as 'k99'"):
        read("part_of_tars", tmp_path, keys=f"{tmp_path}/keys.txt", **common)
    (tmp_path / "keys.txt").write_text("k00\nk13\n")
    assert found(read("part_of_tars", tmp_path, keys=f"{tmp_path}/keys.txt", **common)) == {
        "0.tar/k00.png": "ant",
        "1.tar/k13.png": "bee",
    }
    with pytest.raises(UserError, match="give one of share"):
        make_dataset({"kind": "part_of_tars", "root": str(tmp_path)})


def test_samples_that_are_set_aside_are_counted_if_they_would_be_taken(tmp_path):
    webdataset(tmp_path)
    write_tar(tmp_path / "2.tar", [("torn.png", b"1"), ("whole.png", png()), ("whole.cls", b"0"), ("torn.cls", b"1")])
    reason = "its members do not lie together: the key repeats, or samples are interleaved"
    common = {"label_classes": f"{tmp_path}/classes.txt"}
    (tmp_path / "keys.txt").write_text("whole\ntorn\n")
    listed = read("part_of_tars", tmp_path, keys=f"{tmp_path}/keys.txt", **common)
    assert found(listed) == {"2.tar/whole.png": "ant"}
    assert listed.left_out() == {reason: 1}
    (tmp_path / "keys.txt").write_text("whole\n")
    assert not read("part_of_tars", tmp_path, keys=f"{tmp_path}/keys.txt", **common).left_out()
    parts = [read("part_of_tars", tmp_path, most=most, **common) for most in (1, 100)]
    assert [len(part) for part in parts] == [1, 9]  # as many as are asked for, of those that can be used
    assert read("part_of_tars", tmp_path, share=0.999, **common).left_out() == {reason: 1}


def test_a_larger_part_contains_a_smaller_one(tmp_path):
    webdataset(tmp_path)
    common = {"label_classes": f"{tmp_path}/classes.txt"}
    parts = [set(found(read("part_of_tars", tmp_path, most=most, **common))) for most in (1, 3, 8, 100)]
    assert [len(part) for part in parts] == [1, 3, 8, 8]
    assert parts[0] < parts[1] < parts[2]


def test_the_digits_are_all_there():
    dataset = make_dataset({"kind": "digits"})
    assert len(dataset) == dataset.about.sizes["all"]
    assert not dataset.left_out()
    assert dataset.class_names() == list("0123456789")
    images = list(dataset.part(0, 100))
    assert {image.class_name for image in images} == set("0123456789")  # mixed
    scans, shows = load_digits(return_X_y=True)
    number = int(images[0].key.removeprefix("digit/"))
    assert images[0].class_name == str(shows[number])
    grey = np.asarray(decode(images[0].data))[:, :, 0]
    np.testing.assert_array_equal(grey.reshape(-1), np.round(scans[number] * 255 / 16))
