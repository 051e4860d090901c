"""Splits, keys and order, over a dataset that lists what it is told."""

import pickle
import re
import zlib
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.config import parse
from pipeline.datasets._keys import mixed_rows, unique_keys
from pipeline.datasets._listed import ALSO_SEEN, ListedConfig, ListedDataset, seen_classes
from pipeline.datasets._listing import Entry, gather
from pipeline.datasets.base import About, mixed_order
from pipeline.digests import digest
from pipeline.errors import UserError


class Told(ListedDataset):
    Config = ListedConfig
    about = About(title="t", source="s", licence="l")

    def __init__(self, entries, **config):
        super().__init__(parse(ListedConfig, {"name": "told", "root": "/", **config}, "dataset"))
        self.entries = entries

    def check(self):
        pass

    def find(self, passed_over):
        passed_over["odd"] += 2
        yield from self.entries

    def read(self, entry):
        return entry.source.encode()

    def identity(self, entry):
        return entry.place


def entries(classes):
    return [Entry(name, f"{name}/{i}.png", "png", file_of(name, i)) for name in classes for i in range(classes[name])]


def file_of(name, number):
    return zlib.crc32(name.encode()), number


def names_of(dataset):
    return {image.source for image in dataset.images()}


CLASSES = {f"class{i}": 4 for i in range(9)}


def test_seen_and_unseen_share_no_class_and_are_all():
    every, seen, unseen = (Told(entries(CLASSES), split=split) for split in ("all", "seen", "unseen"))
    assert len(seen.class_names()) == 6
    assert set(seen.class_names()) | set(unseen.class_names()) == set(every.class_names())
    assert not set(seen.class_names()) & set(unseen.class_names())
    assert names_of(seen) | names_of(unseen) == names_of(every)
    assert every.class_names() == sorted(CLASSES)


@settings(max_examples=50)
@given(st.sets(st.text("abcdef", min_size=1, max_size=4), min_size=3, max_size=30), st.integers(2, 5))
def test_over_the_folds_every_class_is_unseen_once(names, folds):
    unseen = [names - seen_classes(sorted(names, reverse=True), folds=folds, fold=fold) for fold in range(folds)]
    assert sum(map(len, unseen)) == len(names)
    assert set().union(*unseen) == names
    assert max(map(len, unseen)) - min(map(len, unseen)) <= 1


def test_every_third_class_is_unseen():
    assert Told(entries(CLASSES), split="unseen").class_names() == ["class2", "class5", "class8"]
    assert Told(entries(CLASSES), split="unseen", class_fold=0).class_names() == ["class0", "class3", "class6"]


def test_pictures_that_are_also_in_a_seen_class_are_not_unseen():
    plain = Told(entries(CLASSES), split="unseen")
    seen_name = Told(entries(CLASSES), split="seen").class_names()[0]
    first, second = plain.class_names()[:2]
    shared = [
        Entry(first, f"{first}/link.png", "png", file_of(seen_name, 0)),  # the file of a seen class
        Entry(first, f"{first}/other.png", "png", file_of(second, 0)),  # the file of another unseen class
    ]
    unseen = Told(entries(CLASSES) + shared, split="unseen")
    assert names_of(unseen) == names_of(plain) | {f"{first}/other.png"}
    assert unseen.left_out() == {ALSO_SEEN: 1, "odd": 2}
    seen = Told(entries(CLASSES) + shared, split="seen")
    assert names_of(seen) == names_of(Told(entries(CLASSES), split="seen"))
    assert len(Told(entries(CLASSES) + shared)) == 38


def test_small_classes_are_left_out_before_the_split():
    small = {**CLASSES, "tiny": 2}
    for split in ("all", "seen", "unseen"):
        dataset = Told(entries(small), split=split, min_images_per_class=3)
        assert names_of(dataset) == names_of(Told(entries(CLASSES), split=split))
        assert dataset.left_out()["class of fewer than 3 images"] == 2


def test_order_is_mixed_fixed_and_can_be_read_in_parts():
    dataset = Told(entries({f"c{i}": 50 for i in range(4)}))
    images = list(dataset.images())
    same = sum(a.class_name == b.class_name for a, b in pairwise(images))
    assert 20 < same < 80  # of 199: a quarter when mixed, nearly all when not
    assert list(Told(entries({f"c{i}": 50 for i in range(4)})[::-1]).images()) == images  # not that of the listing
    assert list(dataset.part(30, 60)) == images[30:60]


def test_only_what_is_asked_for_is_read(monkeypatch):
    read = []
    monkeypatch.setattr(Told, "read", lambda self, entry: read.append(entry.source) or b"")
    list(Told(entries(CLASSES)).part(5, 8))
    assert len(read) == 3


def test_listing_changes_with_the_images():
    digests = {
        Told(entries(CLASSES)).listing(),
        Told(entries({**CLASSES, "class0": 5})).listing(),
        Told([Entry(e.class_name, e.source.replace("/3", "/4"), "png", e.place) for e in entries(CLASSES)]).listing(),
    }
    assert len(digests) == 3
    assert Told(entries(CLASSES)).listing() in digests


def test_a_class_list_says_which_classes_and_in_which_order(tmp_path):
    path = tmp_path / "classes.txt"
    path.write_text("class7\nclass1\nnowhere\nclass4\n")
    dataset = Told(entries({**CLASSES, "class4": 1}), class_list=str(path), min_images_per_class=2)
    assert dataset.class_names() == ["class7", "class1"]
    assert {name.split("/")[0] for name in names_of(dataset)} == {"class1", "class7"}
    assert dataset.left_out() == {
        "class of fewer than 2 images": 1,
        "class that is not in dataset.class_list": 24,
        "odd": 2,
    }
    seen, unseen = (Told(entries(CLASSES), class_list=str(path), split=split) for split in ("seen", "unseen"))
    assert (seen.class_names(), unseen.class_names()) == (["class1", "class4"], ["class7"])  # split among the listed
    with pytest.raises(UserError, match=r"none of the 1,000 classes of dataset\.class_list \(n01440764, .* 9 that are"):
        len(Told(entries(CLASSES), class_list="imagenet1k"))


def test_configs_are_checked():
    for wrong, said in (
        ({"split": "test"}, "split"),
        ({"class_folds": 1}, "class_folds"),
        ({"class_fold": 3}, r"class_fold \(3\) must be less than class_folds \(3\)"),
        ({"splt": "all"}, "Did you mean 'split'"),
    ):
        with pytest.raises(UserError, match=said):
            Told([], **wrong)


# -- kept on the disk


class Looked(Told):
    """One whose source says when it changes; counts how often it is listed."""

    looked, age = 0, 0

    def find(self, passed_over):
        type(self).looked += 1
        yield from super().find(passed_over)

    def fingerprint(self):
        return self.age


def test_a_kept_listing_is_read_and_not_made_again(tmp_path, monkeypatch):
    monkeypatch.setattr(Looked, "looked", 0)
    both = [*entries(CLASSES), Entry("class0", "class0/0.jpg", "jpg"), Entry("class0", "class0/0.jpg", "jpg")]
    first, plain = Looked(both, split="seen"), Told(both, split="seen")
    first.keep_listing_in(tmp_path)
    assert list(first.images()) == list(plain.images())
    assert not list(tmp_path.iterdir())  # looking writes nothing
    first.keep_listing()
    for again in (Looked([], split="seen"), pickle.loads(pickle.dumps(first))):
        again.keep_listing_in(tmp_path)
        assert list(again.images()) == list(plain.images())
        assert (again.listing(), again.left_out()) == (plain.listing(), plain.left_out())
        assert again.class_names() == plain.class_names()
        again.keep_listing()
    assert Looked.looked == 1
    for other in (Looked(both, split="all"), Looked(both, split="seen", min_images_per_class=2)):
        other.keep_listing_in(tmp_path)
        len(other)
    monkeypatch.setattr(Looked, "age", 1)
    changed = Looked(both, split="seen")
    changed.keep_listing_in(tmp_path)
    len(changed)
    assert Looked.looked == 4


def test_half_a_kept_listing_is_none(tmp_path):
    first = Looked(entries(CLASSES))
    first.keep_listing_in(tmp_path)
    first.keep_listing()
    next(tmp_path.glob("*/listing.json")).unlink()
    again = Looked(entries({"other": 3}))
    again.keep_listing_in(tmp_path)
    assert again.class_names() == ["other"]


def test_an_image_takes_bytes_and_no_objects():
    count = 20_000
    names = [f"n{i % 100:08d}" for i in range(count)]
    listing = gather(Entry(name, f"{name}/{name}_{i}.JPEG", "jpeg", (i, i)) for i, name in enumerate(names))
    assert sum(values.nbytes for values in listing.arrays().values()) <= 60 * count
    assert listing[12_345] == Entry("n00000045", "n00000045/n00000045_12345.JPEG", "jpeg", (12_345, 12_345))


@settings(max_examples=50)
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=6), max_size=20))
def test_texts(texts):
    listing = gather(Entry("c", text, "png", (0, 0), f"k{text}") for text in texts)
    assert list(listing.sources) == texts
    assert list(listing.keys or ()) == [f"k{text}" for text in texts]


# -- keys


@settings(max_examples=50)
@given(st.lists(st.text("ab/é", max_size=3), max_size=20, unique=True))
def test_the_order_is_that_of_the_public_function(keys):
    assert mixed_rows(keys.__getitem__, len(keys)).tolist() == mixed_order(keys)


def test_the_digest_is_that_of_the_plain_list():
    dataset = Told(entries(CLASSES))
    rows = [[image.class_name, image.source, image.key] for image in dataset.images()]
    assert dataset.listing() == digest(rows)


def test_keys():
    keys = unique_keys(["a/cat.v2.png", "a/b c.png", "a/größe.jpeg", "plain"])
    assert keys == ["a/cat_v2", "a/b_c", "a/gr__e", "plain"]


def test_keys_that_would_be_alike_are_told_apart_by_their_paths():
    keys = unique_keys(["a/x.png", "a/x.jpg", "a/y.png"])
    assert keys[2] == "a/y"
    assert re.fullmatch(r"a/x-[0-9a-f]{8}", keys[0])
    assert unique_keys(["a/x.jpg", "a/y.png", "a/x.png"]) == [keys[1], keys[2], keys[0]]
    twice = unique_keys(["t/a.png", "t/a.png"])
    assert len(set(twice)) == 2


@settings(max_examples=200)
@given(st.lists(st.text("aä /._-é", min_size=1, max_size=5).map("x{}.png".format), max_size=20))
def test_keys_are_unique_and_plain(sources):
    keys = unique_keys(sources)
    assert len(set(keys)) == len(keys) == len(sources)
    assert all(re.fullmatch(r"[A-Za-z0-9_/-]+", key) for key in keys)
