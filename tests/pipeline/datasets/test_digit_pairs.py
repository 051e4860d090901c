"""Classes and digits are split without overlap, and an image depends on its key and the seed alone."""

from __future__ import annotations

import io
import re
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits

from pipeline.datasets import make_dataset
from pipeline.datasets.base import Dataset
from pipeline.datasets.digit_pairs import CANVAS, DIGIT, GREY, DigitPairs, class_split, digit_pools
from pipeline.errors import UserError


def pairs(**values: object) -> DigitPairs:
    dataset = make_dataset({"kind": "digit_pairs", **values})
    assert isinstance(dataset, DigitPairs)
    return dataset


def test_seventy_classes_are_seen_and_every_digit_is_seen_at_both_places() -> None:
    seen, unseen = class_split()
    assert (len(seen), len(unseen)) == (70, 30)
    assert sorted((*seen, *unseen)) == [f"{index:02d}" for index in range(100)]
    for place in (0, 1):
        assert {name[place] for name in seen} == set("0123456789")
    # the weights of digit_vit know this very split: it must never change
    assert unseen[:10] == ("03", "06", "10", "15", "23", "27", "29", "36", "39", "40")


def test_the_three_splits_share_no_digit_and_leave_none_out() -> None:
    pools = digit_pools()
    every = np.concatenate(list(pools.values()))
    assert sorted(every) == list(range(1797))
    target = load_digits().target
    for (_, digit), pool in pools.items():
        assert (target[pool] == digit).all()
        assert len(pool) > 40


@pytest.mark.parametrize(("split", "classes"), [("backbone", 70), ("seen", 70), ("unseen", 30)])
def test_what_is_promised_is_given(split: str, classes: int) -> None:
    dataset = pairs(split=split, images_per_class=3)
    dataset.check()
    images = list(dataset.images())
    assert len(images) == len(dataset) == 3 * classes
    assert len({image.key for image in images}) == len(images)
    assert all(re.fullmatch(r"[A-Za-z0-9_/-]+", image.key) for image in images)
    assert Counter(image.class_name for image in images) == dict.fromkeys(dataset.class_names(), 3)
    same_class = sum(one.class_name == two.class_name for one, two in pairwise(images))
    assert same_class < 0.1 * len(images), "neighbours are of different classes"
    for image in images[:5]:
        pixels = np.asarray(Image.open(io.BytesIO(image.data)))
        assert image.extension == "png"
        assert pixels.shape == (CANVAS, CANVAS)
        assert np.array_equal(pixels, dataset.pixels(image.key))


def test_an_image_depends_on_seed_and_key_alone() -> None:
    few, many = pairs(images_per_class=2), pairs(images_per_class=5)
    drawn = {image.key: image.data for image in many.images()}
    assert all(drawn[image.key] == image.data for image in few.images())
    other = {image.key: image.data for image in pairs(images_per_class=2, seed=1).images()}
    assert not any(drawn[key] == data for key, data in other.items())
    assert [image.key for image in few.images()] == [image.key for image in few.images()]


def bands(dataset: Dataset) -> list[np.ndarray]:
    """The rows of each image in which anything is drawn."""
    assert isinstance(dataset, DigitPairs)
    images = [dataset.pixels(key) for key in dataset.keys]
    return [image[image.any(axis=1)] for image in images]


def test_the_digits_are_those_of_the_pool_enlarged() -> None:
    dataset = pairs(split="unseen", images_per_class=1, hidden=0)
    small = load_digits().images
    for key in dataset.keys[:6]:
        pixels = dataset.pixels(key)
        for place, digit in enumerate(key.split("/")[1]):
            # wherever the pair stands, an instance of the pool must look like it when it is shrunk again
            half = pixels[:, place * DIGIT :][:, :DIGIT]
            distances = []
            for top in range(CANVAS - DIGIT + 1):
                shrunk = np.asarray(Image.fromarray(half[top : top + DIGIT]).resize((8, 8), Image.Resampling.BOX)) / 255
                pool = small[digit_pools()["unseen", int(digit)]] / 16
                distances.append(np.abs(pool - shrunk).mean(axis=(1, 2)).min())
            assert min(distances) < 0.06


def test_a_share_is_hidden() -> None:
    def share(hidden: float) -> float:
        def has_box(band: np.ndarray) -> bool:
            return bool((band == GREY).all(axis=0).sum() >= 8)

        found = bands(pairs(images_per_class=6, hidden=hidden))
        return float(np.mean([has_box(band) for band in found]))

    assert share(0) == 0
    assert share(1) == 1
    assert abs(share(0.3) - 0.3) < 0.08  # 420 images: 3.6 standard deviations


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"split": "test"}, r"dataset\.split"),
        ({"hidden": 1.5}, r"dataset\.hidden"),
        ({"images_per_class": 0}, r"dataset\.images_per_class"),
        ({"hiden": 0.5}, r"dataset\.hiden: unknown key\. Did you mean 'hidden'\?"),
    ],
)
def test_wrong_values_are_refused(values: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        pairs(**values)
