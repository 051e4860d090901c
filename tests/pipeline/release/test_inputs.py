from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from pipeline.errors import UserError
from pipeline.images.preprocessing import Preprocessing
from pipeline.release.inputs import as_items

PREPROCESSING = Preprocessing(size=8, mean=(0.5, 0.4, 0.3), std=(0.5, 0.2, 0.1), crop=1.0, interpolation="bicubic")


def pixels(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)


def test_one_image_is_a_batch_of_one():
    image = Image.fromarray(pixels(5, 4, 3))
    assert as_items(image, PREPROCESSING) == [image]
    assert as_items("a.png", PREPROCESSING) == ["a.png"]
    assert as_items(Path("a.png"), PREPROCESSING) == [Path("a.png")]
    mixed = [image, "a.png", Path("b.png")]
    assert as_items(mixed, PREPROCESSING) == mixed


@pytest.mark.parametrize("library", [np.asarray, torch.from_numpy])
def test_uint8_of_both_layouts_gives_the_same_images(library):
    last = pixels(2, 5, 4, 3)
    first = np.ascontiguousarray(last.transpose(0, 3, 1, 2))
    for batch in (last, first):
        items = as_items(library(batch), PREPROCESSING)
        assert [np.asarray(item).tolist() for item in items] == last.tolist()


def test_reversed_arrays_are_taken_too():
    last = pixels(2, 5, 4, 3)
    items = as_items(last[:, ::-1], PREPROCESSING)
    assert np.array_equal(np.asarray(items[0]), last[0, ::-1])


def test_arrays_of_another_byte_order_are_taken_too():
    floats = np.zeros((2, 3, 8, 8), dtype=">f4")
    assert torch.equal(as_items(floats, PREPROCESSING), torch.zeros(2, 3, 8, 8))
    assert torch.equal(as_items(floats.astype(np.longdouble), PREPROCESSING), torch.zeros(2, 3, 8, 8))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_floats_are_taken_as_normalised(dtype):
    unit = torch.rand(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    unit[0, :, 0, 0], unit[0, :, 0, 1] = 0, 1  # the very ends of the range
    mean, std = (torch.tensor(value).view(3, 1, 1) for value in (PREPROCESSING.mean, PREPROCESSING.std))
    batch = ((unit - mean) / std).to(dtype)
    taken = as_items(batch, PREPROCESSING)
    assert taken.dtype == torch.float32
    assert torch.equal(taken, batch.float())


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (pixels(8, 8, 3), "add the batch axis"),
        (pixels(0, 8, 8, 3), "longer than 0"),
        (np.array(["a.png", None]), "an array of dtype object"),
        (pixels(2, 3, 8, 3), "channels first or channels last"),
        (pixels(2, 8, 8, 4), r"RGB pixels have shape"),
        (pixels(2, 8, 8, 3).astype(np.int64), "dtype torch.int64"),
        (torch.zeros(2, 3, 9, 9), r"\(B, 3, 8, 8\)"),
        (torch.zeros(2, 8, 8, 3), "model.preprocess"),
        (torch.full((1, 3, 8, 8), 255.0), "not what mean"),
        (torch.full((1, 3, 8, 8), float("nan")), "not what mean"),
        ([], "the list is empty"),
        (["a.png", 3], "a list of int, str"),
        ([pixels(8, 8, 3)], "a list of ndarray"),
        ({"a.png"}, "got set"),
        (None, "got NoneType"),
        (b"", "got bytes"),
        (bytearray(b"\x89PNG"), r"PIL\.Image\.open"),
        ((path for path in ("a.png",)), r"list\(generator\)"),
        (torch.zeros(1, 3, 8, 8, device="meta"), "on meta"),
        (torch.zeros(1, 3, 8, 8).to_sparse(), "sparse"),
    ],
)
def test_what_is_ambiguous_is_refused_with_a_remedy(given, message):
    with pytest.raises(UserError, match=message):
        as_items(given, PREPROCESSING)
