"""Splits, keys and order, over a dataset that lists what it is told."""

import re
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.config import parse
from pipeline.datasets._listed import ALSO_SEEN, Entry, Found, ListedConfig, ListedDataset, seen_classes, unique_keys
from pipeline.datasets.base import About
from pipeline.errors import UserError


class Told(ListedDataset):
    Config = ListedConfig
    about = About(title="t", source="s", licence="l")

    def __init__(self, entries, **config):
        super().__init__(parse(ListedConfig, {"name": "told", "root": "/", **config}, "dataset"))
        self.entries = entries

    def check(self):
        pass

    def find(self):
        return Found(entries=self.entries, passed_over={"odd": 2})

    def read(self, entry):
        return entry.source.encode()

    def identity(self, entry):
        return entry.place


def entries(classes):
    return [Entry(name, f"{name}/{i}.png", "png", (name, i)) for name, count in classes.items() for i in range(count)]


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
        Entry(first, f"{first}/link.png", "png", (seen_name, 0)),  # the file of a seen class
        Entry(first, f"{first}/other.png", "png", (second, 0)),  # the file of another unseen class
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


def test_configs_are_checked():
    for wrong, said in (
        ({"split": "test"}, "split"),
        ({"class_folds": 1}, "class_folds"),
        ({"class_fold": 3}, r"class_fold \(3\) must be less than class_folds \(3\)"),
        ({"splt": "all"}, "Did you mean 'split'"),
    ):
        with pytest.raises(UserError, match=said):
            Told([], **wrong)


# -- keys


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
