"""Decoding is strict, and every kind of image has one policy (docs/inputs.md)."""

import contextlib
import gzip
import io
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image, ImageOps, PngImagePlugin

from pipeline.images.decode import BadImage, decode, upright_rgb
from tests.pipeline.images.dirt import four_channel_jpeg, png, png_16


def pixels(image):
    assert image.mode == "RGB"
    return np.asarray(image).astype(int)


def refusal(data, **options):
    with pytest.raises(BadImage) as caught:
        decode(data, **options)
    return str(caught.value)


@pytest.mark.parametrize("format_", ["PNG", "WEBP", "GIF", "BMP", "TIFF", "JPEG"])
def test_formats(photo, encoded, format_):
    options = (
        {"lossless": True} if format_ == "WEBP" else {"quality": 95, "subsampling": 0} if format_ == "JPEG" else {}
    )
    image = photo.quantize() if format_ == "GIF" else photo
    data = encoded(image, format_, **options)
    tolerance = 12 if format_ == "JPEG" else 0
    assert np.abs(pixels(decode(data)) - pixels(image.convert("RGB"))).max() <= tolerance


# -- modes, each against values worked by hand


def test_alpha_is_composed_on_white(encoded):
    image = Image.fromarray(np.array([[[200, 100, 0, 255], [200, 100, 0, 0], [200, 100, 0, 51]]], np.uint8))
    # 51/255 = 0.2 of the colour and 0.8 of white
    expected = [[[200, 100, 0], [255, 255, 255], [244, 224, 204]]]
    assert pixels(decode(encoded(image))).tolist() == expected


def test_alpha_against_the_formula(encoded):
    rgba = np.random.default_rng(0).integers(0, 256, (50, 50, 4), dtype=np.uint8)
    found = pixels(decode(encoded(Image.fromarray(rgba))))
    alpha = rgba[..., 3:] / 255
    assert np.abs(found - (rgba[..., :3] * alpha + 255 * (1 - alpha))).max() <= 0.51


def test_grey_with_alpha(encoded):
    image = Image.fromarray(np.array([[[10, 255], [10, 0]]], np.uint8))
    assert pixels(decode(encoded(image))).tolist() == [[[10] * 3, [255] * 3]]


def test_palettes(encoded):
    image = Image.fromarray(np.array([[0, 1, 2]], np.uint8))
    image.putpalette([10, 20, 30, 40, 50, 60, 70, 80, 90])
    assert pixels(decode(encoded(image))).tolist() == [[[10, 20, 30], [40, 50, 60], [70, 80, 90]]]
    one = encoded(image, transparency=1)
    assert pixels(decode(one)).tolist() == [[[10, 20, 30], [255] * 3, [70, 80, 90]]]
    graded = encoded(image, transparency=bytes([255, 0, 51]))
    assert pixels(decode(graded)).tolist() == [[[10, 20, 30], [255] * 3, [218, 220, 222]]]


def test_grey_bilevel_and_a_transparent_colour(encoded):
    grey = Image.fromarray(np.array([[7, 9]], np.uint8))
    assert pixels(decode(encoded(grey))).tolist() == [[[7] * 3, [9] * 3]]
    assert pixels(decode(encoded(grey, transparency=9))).tolist() == [[[7] * 3, [255] * 3]]
    assert pixels(decode(encoded(grey.point(lambda v: 255 * (v > 8), "1")))).tolist() == [[[0] * 3, [255] * 3]]
    colour = Image.fromarray(np.array([[[1, 2, 3], [4, 5, 6]]], np.uint8))
    assert pixels(decode(encoded(colour, transparency=(4, 5, 6)))).tolist() == [[[1, 2, 3], [255] * 3]]


def test_16_bit_grey_is_scaled_not_clipped(encoded):
    values = np.array([[0, 128, 129, 257, 32768, 65535]], np.uint16)
    grey = Image.fromarray(values)
    assert pixels(decode(encoded(grey)))[0, :, 0].tolist() == [0, 0, 1, 1, 128, 255]  # v / 257, rounded
    assert pixels(decode(encoded(grey, "TIFF")))[0, :, 0].tolist() == [0, 0, 1, 1, 128, 255]
    assert pixels(decode(encoded(grey, transparency=32768)))[0, :, 0].tolist() == [0, 0, 1, 1, 255, 255]


def test_cmyk(encoded):
    flat = {
        name: Image.new("CMYK", (16, 16), ink)
        for name, ink in {"red": (0, 255, 255, 0), "black": (0, 0, 0, 255)}.items()
    }
    for data in (encoded(flat["red"], "JPEG", quality=95), encoded(flat["red"], "TIFF")):
        assert np.abs(pixels(decode(data)) - [255, 0, 0]).max() <= 3
    jpeg = encoded(flat["black"], "JPEG", quality=95)
    assert b"Adobe" in jpeg[:200]  # so the inks are stored inverted
    assert np.abs(pixels(decode(jpeg))).max() <= 3


@pytest.mark.parametrize("stored", [(200, 90, 30, 120), (20, 200, 128, 255), (128, 128, 128, 40)])
def test_four_channels_with_and_without_their_marker(stored):
    """Against the formulas: inks are stored inverted, and YCCK stores C, M, Y as Y, Cb, Cr of the inverse."""
    image = Image.new("CMYK", (16, 16), tuple(255 - value for value in stored))  # Pillow inverts what it writes
    c, m, y, k = stored
    for transform in (0, None):
        assert np.abs(pixels(decode(four_channel_jpeg(image, transform))) - [v * k / 255 for v in (c, m, y)]).max() <= 4
    luma, blue, red = c, m - 128, y - 128
    inks = np.clip([luma + 1.402 * red, luma - 0.344136 * blue - 0.714136 * red, luma + 1.772 * blue], 0, 255)
    expected = (255 - inks) * k / 255  # libjpeg's YCCK: the RGB that Y, Cb, Cr give, inverted, is C, M, Y
    assert np.abs(pixels(decode(four_channel_jpeg(image, 2))) - expected).max() <= 4


def test_16_bit_colour_is_cut_to_8_bits():
    values = np.random.default_rng(0).integers(0, 1 << 16, (5, 7, 3))
    assert (pixels(decode(png_16(values))) == values >> 8).all()
    grey = values[:, :, :1]
    assert (pixels(decode(png_16(grey))) == np.round(grey / 257)).all()


def test_pixels_without_a_fixed_range_are_refused(encoded):
    assert "32 bits" in refusal(encoded(Image.fromarray(np.ones((4, 4), np.float32)), "TIFF"))
    assert "32 bits" in refusal(encoded(Image.fromarray(np.ones((4, 4), np.int32)), "TIFF"))


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("format_", ["JPEG", "PNG", "WEBP", "TIFF"])
def test_exif_orientation(photo, encoded, orientation, format_):
    exif = Image.Exif()
    exif[0x0112] = orientation
    options = {"lossless": True} if format_ == "WEBP" else {}
    data = encoded(photo, format_, exif=exif, **options)
    plain = encoded(photo, format_, **options)
    turned = decode(data)
    # written out for the two that photographs have most; the rest as Pillow's own routine has it
    raw = pixels(decode(plain))
    if orientation == 6:
        assert (pixels(turned) == np.rot90(raw, -1)).all()
    if orientation == 3:
        assert (pixels(turned) == raw[::-1, ::-1]).all()
    again = Image.fromarray(raw.astype(np.uint8))
    again.getexif()[0x0112] = orientation
    assert (pixels(turned) == pixels(ImageOps.exif_transpose(again))).all()
    assert (pixels(upright_rgb(turned)) == pixels(turned)).all()  # not turned a second time


def test_an_opened_image_that_cannot_be_loaded_is_refused(photo, encoded):
    """Pillow takes what a load that failed has left for the whole image, and asking a PNG for its EXIF loads it."""
    data = bytearray(encoded(photo, "PNG"))
    data[len(data) // 2] ^= 255
    with pytest.raises(BadImage, match="cannot be decoded as PNG"):
        upright_rgb(Image.open(io.BytesIO(data)))
    closed = Image.open(io.BytesIO(encoded(photo, "PNG")))
    closed.close()
    with pytest.raises(BadImage, match="closed"):
        upright_rgb(closed)
    with pytest.raises(BadImage, match="no pixels: 0 × 5"):
        upright_rgb(Image.new("RGB", (0, 5)))


@pytest.mark.parametrize("format_", ["PNG", "WEBP", "GIF", "BMP", "TIFF", "JPEG"])
def test_an_image_that_was_loaded_in_time_outlives_its_file(photo, encoded, format_):
    with io.BytesIO(encoded(photo, format_)) as file:
        image = Image.open(file)
        image.load()
        wanted = pixels(upright_rgb(image))
    assert (pixels(upright_rgb(image)) == wanted).all()


def test_an_error_without_words_is_called_by_its_kind(photo, encoded, monkeypatch):
    monkeypatch.setattr("PIL.PngImagePlugin.PngImageFile.load", lambda self: (_ for _ in ()).throw(AssertionError))
    assert refusal(encoded(photo, "PNG")) == "cannot be decoded as PNG: AssertionError"


def test_damaged_exif_spares_the_picture_and_says_nothing(photo, encoded):
    for exif in (b"Exif\0\0MM\0*\0\0\0\x08\xff\xff", b"Exif\0\0II*\0\xff\xff\xff\xff", b"Exif\0\0garbage"):
        data = encoded(photo, "JPEG", exif=exif)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert decode(data).size == photo.size


def test_the_first_frame_of_an_animation(encoded):
    frames = [Image.new("RGB", (8, 8), colour) for colour in ("red", "blue")]
    for format_, options in {"GIF": {}, "WEBP": {"lossless": True}, "PNG": {}}.items():
        data = encoded(frames[0], format_, save_all=True, append_images=frames[1:], **options)
        assert pixels(decode(data))[0, 0].tolist() == [255, 0, 0]


# -- refusals


def test_refusals_name_the_reason(photo, encoded):
    png = encoded(photo)
    assert refusal(b"") == "empty file (0 bytes)"
    assert "gzip-compressed" in refusal(gzip.compress(png))
    assert "begins with b'<html>" in refusal(b"<html><body>404 Not Found")
    assert "JPEG, PNG" in refusal(b"\x00" * 100)
    assert "PNG" in refusal(png[:20])


@pytest.mark.parametrize("format_", ["JPEG", "PNG", "WEBP", "GIF", "BMP"])
@pytest.mark.parametrize("share", [0.2, 0.5, 0.8, 0.95])
def test_cut_off_images_are_refused(encoded, format_, share):
    noise = Image.fromarray(np.random.default_rng(1).integers(0, 256, (64, 64, 3), dtype=np.uint8))
    data = encoded(noise, format_)
    assert decode(data).size == (64, 64)
    assert format_ in refusal(data[: int(share * len(data))])


def test_a_progressive_jpeg_cut_in_its_last_scan_is_refused(photo, encoded):
    data = encoded(photo, "JPEG", progressive=True, quality=95)
    assert "JPEG" in refusal(data[:-40])


def test_flipped_bits_in_a_png_are_refused(photo, encoded):
    data = bytearray(encoded(photo))
    data[data.index(b"IDAT") + 20] ^= 4
    refusal(bytes(data))


def png_header(width, height):
    """A PNG that claims a size and holds no pixels to speak of."""
    return png(width, height, 8, 2, None)


def test_too_many_pixels_are_refused_from_the_header(monkeypatch):
    assert "PNG" in refusal(png_header(11, 10), max_pixels=110)  # small enough, but empty
    monkeypatch.setattr(PngImagePlugin.PngImageFile, "load", None)
    assert refusal(png_header(20990, 29700)) == "too many pixels: 20990 × 29700, at most 178956970 are decoded"
    assert "too many pixels" in refusal(png_header(11, 10), max_pixels=109)
    assert "not callable" in refusal(png_header(11, 10), max_pixels=110)


def test_a_size_that_pillow_warns_of_is_judged_by_our_limit_alone():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert "cannot be decoded as PNG" in refusal(png_header(10_000, 10_000))


def test_the_name_does_not_matter_but_reasons_are_always_the_same(photo, encoded):
    cut = encoded(photo, "JPEG")[:-200]
    assert len({refusal(cut) for _ in range(5)}) == 1  # no addresses, no times


def test_threads(photo, encoded):
    """Good and bad images side by side, many times: each keeps its own answer, and no warning comes out."""
    alpha = photo.convert("RGBA")
    alpha.putalpha(100)
    jobs = [
        encoded(photo),
        encoded(alpha),
        encoded(photo, "JPEG", exif=b"Exif\0\0MM\0*\0\0\0\x08\xff\xff"),
        b"",
        encoded(photo)[:-60],
    ]
    start = threading.Barrier(8)

    def answers(number):
        start.wait()
        out = []
        for turn in range(40):
            try:
                out.append((number + turn) % 5)
                out.append(decode(jobs[(number + turn) % 5]).tobytes())
            except BadImage as error:
                out.append(str(error))
        return dict(zip(out[::2], out[1::2], strict=True))

    with ThreadPoolExecutor(8) as pool:
        first, *rest = pool.map(answers, range(8))
    assert all(other == first for other in rest)
    assert len(set(first.values())) >= 4


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(["JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF"]), st.data())
def test_damaged_bytes_give_an_image_or_a_reason(photo, encoded, format_, data):
    damaged = bytearray(encoded(photo.convert("RGBA") if format_ in ("PNG", "WEBP") else photo, format_))
    for place in data.draw(st.lists(st.integers(0, len(damaged) - 1), max_size=6)):
        damaged[place] = data.draw(st.integers(0, 255))
    with contextlib.suppress(BadImage):
        assert decode(bytes(damaged), max_pixels=1_000_000).mode == "RGB"
