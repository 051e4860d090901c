"""Views: timm's evaluation transform to the byte, the paper's augmentation in distribution, whatever the order."""

import math
import random
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.stats import ks_2samp, kstest
from timm.data import create_transform
from timm.data.transforms import RandomResizedCropAndInterpolation
from torchvision.transforms import ColorJitter, functional

from pipeline.backbones.normalise import normalise
from pipeline.errors import UserError
from pipeline.images.augmentation import (
    CROP_ATTEMPTS,
    DRAWS,
    JITTER_ORDERS,
    Augmentation,
    AugmentationConfig,
    Crop,
    apply,
    draw,
    draw_crop,
)
from pipeline.images.preprocessing import Preprocessing
from pipeline.images.views import VIEW_PARAMS, make_views, parse_view

PAPER = AugmentationConfig()


def preprocessing(size=32, crop=0.9, interpolation="bicubic"):
    return Preprocessing(
        size=size, mean=(0.485, 0.456, 0.406), std=(0.2, 0.3, 0.4), crop=crop, interpolation=interpolation
    )


def noise(width, height, seed=0):
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8))


def views_of(image, key="k", views=("center",), seed=0, pre=None, augmentation=PAPER):
    return make_views(
        image, key, views=views, seed=seed, preprocessing=pre or preprocessing(), augmentation=augmentation
    )


def param(views, name, view=0):
    return float(views.params[view, VIEW_PARAMS.index(name)])


# -- center


@pytest.mark.parametrize("size", [(640, 480), (333, 500), (224, 224), (37, 211), (500, 23), (1, 9), (100, 100)])
@pytest.mark.parametrize(
    ("side", "crop", "interpolation"), [(224, 0.9, "bicubic"), (42, 1.0, "bilinear"), (96, 0.875, "lanczos")]
)
def test_center_is_timms_evaluation_transform(size, side, crop, interpolation):
    image, pre = noise(*size), preprocessing(side, crop, interpolation)
    timms = create_transform((3, side, side), interpolation=interpolation, mean=pre.mean, std=pre.std, crop_pct=crop)
    ours = views_of(image, pre=pre).pixels[0]
    raw = create_transform((3, side, side), interpolation=interpolation, crop_pct=crop, normalize=False)
    assert np.array_equal(ours, raw(image).permute(1, 2, 0).numpy())
    torch.testing.assert_close(normalise(torch.from_numpy(ours), pre), timms(image), rtol=0, atol=1e-6)


def test_center_says_where_it_looked():
    views = views_of(
        noise(300, 100), pre=preprocessing(50, 0.5, "bilinear")
    )  # resized to 300 × 100, so nothing changes
    assert [param(views, name) for name in ("crop_left", "crop_top", "crop_width", "crop_height")] == pytest.approx(
        [125 / 300, 25 / 100, 50 / 300, 50 / 100]
    )
    assert [param(views, name) for name in ("flip", "bicubic", "jitter", "image_width", "image_height")] == [
        0,
        0,
        0,
        300,
        100,
    ]
    assert math.isnan(param(views, "brightness"))
    assert np.array_equal(views.pixels[0], np.asarray(noise(300, 100))[25:75, 125:175])


def test_a_very_long_image_does_not_fill_memory():
    image = noise(200_000, 2)  # resized as a whole it would be 24,888,800 × 248 pixels
    views = views_of(image, pre=preprocessing(224, 0.9))
    assert views.pixels.shape == (1, 224, 224, 3)
    middle = image.crop((99_900, 0, 100_100, 2))
    assert np.array_equal(views.pixels[0], views_of(middle, pre=preprocessing(224, 0.9)).pixels[0])


# -- random


def test_views_are_functions_of_seed_key_and_name_alone():
    image = noise(80, 60)
    names = ["center", *(f"random{i}" for i in range(6))]
    together = views_of(image, views=names)
    alone = {name: views_of(image, views=[name]).pixels[0] for name in reversed(names)}
    for place, name in enumerate(names):
        assert np.array_equal(together.pixels[place], alone[name])
    assert len({view.tobytes() for view in together.pixels}) == len(names)
    assert not np.array_equal(views_of(image, views=["random0"], seed=1).pixels[0], alone["random0"])
    assert not np.array_equal(views_of(image, key="l", views=["random0"]).pixels[0], alone["random0"])


def test_threads_and_order_do_not_change_bytes():
    images = {f"k{i}": noise(50 + i, 70 - i, i) for i in range(24)}

    def make(key):
        views = views_of(images[key], key, views=["random0", "random1"])
        return key, views.pixels.tobytes() + views.params.tobytes()

    serial = dict(map(make, images))
    with ThreadPoolExecutor(6) as pool:
        assert dict(pool.map(make, list(images)[::-1])) == serial


def test_the_stream_is_pinned():
    """The draws are part of what a store means: a library's change of stream must not pass unseen."""
    drawn = views_of(noise(100, 80), key="animals/cat", views=["random0", "random1"], seed=3).params[:, :4]
    pinned = [[0.16, 0.025, 0.71, 0.8125], [0.45, 0.2375, 0.28, 0.4375]]
    assert drawn == pytest.approx(np.array(pinned), abs=1e-6)


@pytest.fixture(scope="module")
def params():
    """Parameters of 3,000 random views of one image, by name."""
    image, count = noise(12, 9), 3000
    names = [f"random{i}" for i in range(count)]
    table = views_of(image, views=names, pre=preprocessing(2)).params
    return {name: table[:, i] for i, name in enumerate(VIEW_PARAMS)}


def share(values, probability):
    """The share of ones is within four standard deviations."""
    count = len(values)
    assert values.mean() == pytest.approx(probability, abs=4 * math.sqrt(probability * (1 - probability) / count))


def test_rates(params):
    share(params["flip"], 0.5)
    share(params["bicubic"], 0.5)
    share(params["jitter"], 0.4)
    on = params["jitter"] == 1
    for order in range(len(JITTER_ORDERS)):
        share(params["jitter_order"][on] == order, 1 / 6)
    # independent of each other
    share(params["flip"][on], 0.5)
    share(params["bicubic"][params["flip"] == 1], 0.5)


def test_factors(params):
    on = params["jitter"] == 1
    for name in ("brightness", "contrast", "saturation"):
        assert np.isnan(params[name][~on]).all()
        assert kstest(params[name][on], "uniform", args=(0.6, 0.8)).pvalue > 1e-3
    assert abs(np.corrcoef(params["brightness"][on], params["contrast"][on])[0, 1]) < 0.12
    assert all(np.isnan(params[name]).all() for name in ("blur_sigma", "box_share", "noise_sigma"))


@pytest.mark.parametrize("size", [(500, 375), (300, 300), (640, 90)])
def test_crops_are_distributed_as_timms(size):
    """Area, ratio and position against timm's own class; the last image is so long that most crops do not fit."""
    count = 4000
    image = Image.new("RGB", size)
    random.seed(5)
    timms = [RandomResizedCropAndInterpolation.get_params(image, PAPER.scale, PAPER.ratio) for _ in range(count)]
    rng = np.random.default_rng(5)
    ours = [draw_crop(size, PAPER, rng.random(DRAWS).tolist()) for _ in range(count)]
    top, left, height, width = np.array(timms, float).T
    for theirs, mine in {
        "area": (width * height, [c.width * c.height for c in ours]),
        "ratio": (width / height, [c.width / c.height for c in ours]),
        "left": (left, [c.left for c in ours]),
        "top": (top, [c.top for c in ours]),
    }.values():
        assert ks_2samp(theirs, mine).pvalue > 1e-3


def test_the_crop_that_is_taken_when_none_fits():
    never = [0.999999] * (4 * CROP_ATTEMPTS)
    assert draw_crop((1000, 10), PAPER, never) == Crop(left=493, top=0, width=13, height=10)
    assert draw_crop((10, 1000), PAPER, never) == Crop(left=0, top=493, width=10, height=13)
    assert draw_crop((1, 1), PAPER, never) == Crop(left=0, top=0, width=1, height=1)


@pytest.mark.parametrize("size", [(1, 1), (2, 1), (1, 300), (3, 3)])
def test_tiny_images_have_views(size):
    views = views_of(noise(*size), views=[f"random{i}" for i in range(50)])
    left, top, width, height = views.params[:, :4].T
    assert (width > 0).all()
    assert (height > 0).all()
    assert (left + width <= 1 + 1e-6).all()
    assert (top + height <= 1 + 1e-6).all()


def test_applying_is_what_torchvision_does():
    image = noise(120, 90)
    factors = {"brightness": 1.3, "contrast": 0.7, "saturation": 1.2}
    for order, names in enumerate(JITTER_ORDERS):
        drawn = Augmentation(
            crop=Crop(left=7, top=11, width=60, height=50),
            bicubic=order % 2 == 0,
            flip=True,
            jitter=factors,
            order=order,
        )
        mode = functional.InterpolationMode.BICUBIC if drawn.bicubic else functional.InterpolationMode.BILINEAR
        expected = functional.hflip(functional.resized_crop(image, 11, 7, 50, 60, [32, 32], mode))
        for name in names:
            expected = getattr(functional, f"adjust_{name}")(expected, factors[name])
        assert np.array_equal(np.asarray(apply(drawn, image, 32)), np.asarray(expected))


def test_the_factors_have_torchvisions_range():
    drawn = [draw((9, 9), PAPER, [0.0] * (DRAWS - 3) + [u] * 3).jitter["contrast"] for u in (0.0, 0.5, 1.0)]
    low, high = ColorJitter(contrast=PAPER.jitter).contrast
    assert drawn == pytest.approx([low, 1.0, high])


def test_probabilities_at_their_ends():
    off = AugmentationConfig(flip_probability=0, jitter_probability=0)
    always = AugmentationConfig(flip_probability=1, jitter_probability=1)
    for config, value in ((off, 0), (always, 1)):
        views = views_of(noise(20, 20), views=[f"random{i}" for i in range(60)], augmentation=config)
        for name in ("flip", "jitter"):
            assert (views.params[:, VIEW_PARAMS.index(name)] == value).all()


def test_a_range_the_wrong_way_round_is_refused():
    with pytest.raises(ValueError, match="from small to large"):
        AugmentationConfig(scale=(0.5, 0.1))


def test_names():
    assert parse_view("center") == ("center", -1)
    assert parse_view("random12") == ("random", 12)
    for name in ("centre", "center0", "random", "random-1", ""):
        with pytest.raises(UserError, match=r"blur_1, .*center, .*random0"):
            parse_view(name)
    assert len(set(VIEW_PARAMS)) == len(VIEW_PARAMS)


def test_normalise_keeps_batches_channels_last():
    pixels = torch.randint(0, 256, (5, 8, 8, 3), dtype=torch.uint8)
    images = normalise(pixels, preprocessing())
    assert images.shape == (5, 3, 8, 8)
    assert images.is_contiguous(memory_format=torch.channels_last)
    assert images[2, 1, 3, 4].item() == pytest.approx((pixels[2, 3, 4, 1].item() / 255 - 0.456) / 0.3, abs=1e-6)
