"""Named views that make an image harder to tell: what they do, how strongly, and what decides their bytes."""

import io

import numpy as np
import pytest
from PIL import Image
from scipy.stats import kstest

from pipeline.caching.settings import CacheSettings
from pipeline.errors import UserError
from pipeline.images.augmentation import AugmentationConfig
from pipeline.images.interventions import CHANGES, GROUPS, STRENGTHS, ZOOMS
from pipeline.images.preprocessing import Preprocessing
from pipeline.images.views import VIEW_PARAMS, expand, make_views, params_of, parse_view
from tests.pipeline.images.test_views import noise as random_pixels

SIDE = 224
PRE = Preprocessing(size=SIDE, mean=(0.5,) * 3, std=(0.5,) * 3, crop=0.875, interpolation="bicubic")
SMALL = Preprocessing(size=32, mean=(0.5,) * 3, std=(0.5,) * 3, crop=0.875, interpolation="bilinear")


def made(image, *views, key="k", seed=0, pre=PRE):
    return make_views(image, key, views=views, seed=seed, preprocessing=pre, augmentation=AugmentationConfig())


def param(views, name, names, view=0):
    return float(views.params[view, params_of(names).index(name)])


@pytest.fixture(scope="module")
def photograph():
    """Smooth, with an edge and some texture."""
    y, x = np.mgrid[0:240, 0:320]
    grey = 110 + 60 * np.sin(x / 23) + 40 * np.cos(y / 17) + 30 * ((x // 40 + y // 40) % 2)
    return Image.fromarray(np.stack([grey, grey * 0.9, grey * 0.8], -1).clip(0, 255).astype(np.uint8))


def test_each_view_is_a_function_of_seed_key_and_name_alone():
    image, names = random_pixels(50, 40), ("center", *expand(["crops", "interventions"]))
    together = made(image, *names, pre=SMALL)
    for name in ("box_4", "noise_2", "zoom_5", "crop_30"):
        assert np.array_equal(made(image, name, pre=SMALL).pixels[0], together.pixels[names.index(name)])
    for name in ("box_2", "noise_1"):
        one = made(image, name, pre=SMALL).pixels
        assert not np.array_equal(one, made(image, name, key="l", pre=SMALL).pixels)
        assert not np.array_equal(one, made(image, name, seed=1, pre=SMALL).pixels)
    for name in ("blur_2", "zoom_1", "jpeg_3", "crop_50"):
        assert np.array_equal(made(image, name, pre=SMALL).pixels, made(image, name, key="l", seed=9, pre=SMALL).pixels)


def test_the_whole_crop_is_center_and_a_part_is_what_pillow_cuts(photograph):
    views = made(photograph, "center", "crop_100", "crop_50")
    assert np.array_equal(views.pixels[0], views.pixels[1])
    boxes = views.params[:, :4] * [320, 240, 320, 240]
    left, top, width, height = boxes[0]
    assert width == height == pytest.approx(210)  # 7/8 of the shorter side
    middle = (left + width / 4, top + height / 4, left + 3 * width / 4, top + 3 * height / 4)
    np.testing.assert_allclose(boxes[2], [*middle[:2], width / 2, height / 2], atol=1e-4)
    half = photograph.resize((SIDE, SIDE), Image.Resampling.BICUBIC, box=middle)
    assert np.abs(views.pixels[2].astype(int) - np.asarray(half)).max() <= 1


def test_zoom_enlarges_the_middle_of_the_view(photograph):
    names = [f"zoom_{number}" for number in STRENGTHS["zoom"]]
    views = made(photograph, "center", *names)
    widths = views.params[:, VIEW_PARAMS.index("crop_width")]
    np.testing.assert_allclose(widths[0] / widths[1:], ZOOMS, rtol=1e-5)
    cut = Image.fromarray(views.pixels[0]).crop((56, 56, 168, 168)).resize((SIDE, SIDE), Image.Resampling.BICUBIC)
    inner = np.s_[8:-8, 8:-8]  # beyond the rim, where the cut one knows nothing of its surroundings
    np.testing.assert_array_equal(views.pixels[names.index("zoom_3") + 1][inner], np.asarray(cut)[inner])


def test_blur_spreads_a_point_by_sigma():
    image = Image.new("RGB", (256, 256))
    image.paste((255,) * 3, (112, 112, 144, 144))
    names = [f"blur_{number}" for number in STRENGTHS["blur"]]
    views = made(image, "center", *names)
    x = np.arange(SIDE)
    for place, sigma in enumerate(CHANGES["blur"].strengths, 1):
        assert param(views, "blur_sigma", ["center", *names], place) == pytest.approx(sigma)
        before, after = (views.pixels[view, :, :, 0].sum(0) / views.pixels[view, :, :, 0].sum() for view in (0, place))
        spread = [(share * x**2).sum() - (share * x).sum() ** 2 for share in (before, after)]
        assert spread[1] - spread[0] == pytest.approx(sigma**2, rel=0.15, abs=0.3)


def test_sigma_of_the_blur_goes_with_the_side_of_the_view(photograph):
    assert param(made(photograph, "blur_5", pre=SMALL), "blur_sigma", ["blur_5"]) == pytest.approx(6 * 32 / 224)


def test_a_box_covers_its_share_at_places_that_differ(photograph):
    names = [f"box_{number}" for number in STRENGTHS["box"]]
    places = set()
    for key in "abcdefgh":
        views = made(photograph, "center", *names, key=key)
        for place, share in enumerate(CHANGES["box"].strengths, 1):
            grey = (views.pixels[place] == 128).all(axis=2)
            assert grey.mean() == pytest.approx(share, abs=0.01)
            assert grey.mean() == pytest.approx(param(views, "box_share", names, place), abs=1e-6)
            assert np.array_equal(views.pixels[place][~grey], views.pixels[0][~grey])
            places.add((place, *np.argwhere(grey).min(axis=0).tolist()))
    assert len(places) > 30


def test_noise_is_normal_with_its_sigma():
    image = Image.new("RGB", (256, 256), (128,) * 3)
    names = [f"noise_{number}" for number in STRENGTHS["noise"]]
    views = made(image, *names)
    for place, sigma in enumerate(CHANGES["noise"].strengths):
        assert param(views, "noise_sigma", names, place) == pytest.approx(sigma)
    off = (views.pixels[1].astype(float).reshape(-1) - 128) / 255
    rounded = off + np.random.default_rng(0).uniform(-0.5, 0.5, off.size) / 255  # pixels are whole numbers
    assert kstest(rounded[::5] / 0.12, "norm").pvalue > 1e-3
    assert abs(np.corrcoef(off[::2], off[1::2])[0, 1]) < 0.02


def test_jpeg_is_what_pillow_codes(photograph):
    views = made(photograph, "center", "jpeg_1", "jpeg_5")
    buffer = io.BytesIO()
    Image.fromarray(views.pixels[0]).save(buffer, "JPEG", quality=7)
    assert np.array_equal(views.pixels[2], np.asarray(Image.open(buffer)))
    assert param(views, "jpeg_quality", ["jpeg_1"], 1) == 25
    assert np.isnan(param(views, "jpeg_quality", ["jpeg_1"], 0))


@pytest.mark.parametrize("kind", ["blur", "box", "noise", "jpeg"])
def test_a_greater_strength_changes_more(kind, photograph):
    views = made(photograph, "center", *(f"{kind}_{number}" for number in STRENGTHS[kind])).pixels.astype(float)
    error = np.square(views[1:] - views[0]).mean(axis=(1, 2, 3))
    assert (np.diff(error) > 0).all()


def test_groups_stand_for_their_views_and_names_that_are_none_are_refused():
    assert expand(["center", "crops"]) == ("center", *(f"crop_{percent}" for percent in range(10, 101, 10)))
    assert len(expand(["interventions"])) == len(set(expand(["interventions"]))) == 25
    for names in GROUPS.values():
        assert [f"{kind}_{number}" for kind, number in map(parse_view, names)] == list(names)
    for name in ("blur", "blur_0", "blur_6", "blur3", "crop_45", "crop_050", "interventions", "box_", "_1"):
        with pytest.raises(UserError, match=r"blur_1, .*center, .*random0"):
            parse_view(name)
    with pytest.raises(ValueError, match="views: unknown view 'blurr'"):
        CacheSettings(views=("center", "blurr"))
    both = CacheSettings(views=("center", "crop_50", "crops"), random_views=1).view_names
    assert both[:2] == ("center", "crop_50")
    assert both[-1] == "random0"
    assert len(both) == len(set(both)) == 12


def test_a_store_has_more_parameters_only_where_a_view_needs_them():
    assert params_of(["center", "random0", "crop_10", "noise_5"]) == VIEW_PARAMS
    assert params_of(["center", "jpeg_2"]) == (*VIEW_PARAMS, "jpeg_quality")
