"""What a released model accepts as images: one policy, and a clear refusal of whatever could be meant in two ways.

| given | taken as |
|---|---|
| path, PIL image, or a sequence of them | encoded or decoded images (docs/inputs.md), preprocessed one by one |
| uint8 array or tensor, (B, H, W, 3) or (B, 3, H, W) | RGB pixels of any size, preprocessed one by one |
| floating-point array or tensor, (B, 3, size, size) | already preprocessed, by :attr:`ReleasedModel.preprocess` |

Refused: a batch axis that is missing, a uint8 shape with 3 at both places (channels first or last?), floats of
another size, floats beyond what the normalisation can give (0–255 pixels, say), NaN, nothing at all. Floats in [0, 1]
cannot be told from normalised ones; whoever gives floats says that they are normalised.

Shapes: B images, H × W pixels, size = side of the backbone's input.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from pipeline.errors import UserError
from pipeline.images.preprocessing import Preprocessing

OneImage: TypeAlias = "str | Path | Image.Image"
Images: TypeAlias = "OneImage | Sequence[OneImage] | np.ndarray[Any, Any] | Tensor"

ROUNDING = 2e-2  # how far a normalised value may lie outside, by rounding to bfloat16


def as_items(images: Images, preprocessing: Preprocessing) -> Sequence[OneImage] | Tensor:
    """Sort out what was given: single images to preprocess, or a normalised batch.

    Returns:
        A sequence of paths and PIL images, or a float32 tensor (B, 3, size, size).

    Raises:
        UserError: what was given is none of the accepted forms, or could be meant in two ways.
    """
    if isinstance(images, (str, Path, Image.Image)):
        return [images]
    if isinstance(images, np.ndarray):
        if images.dtype.kind not in "biuf":
            raise UserError(f"images: an array of dtype {images.dtype}. Give uint8 pixels, or a list of images.")
        # torch has no floats of more than 8 bytes
        native = np.dtype(np.float64) if images.dtype == np.longdouble else images.dtype.newbyteorder("=")
        images = torch.from_numpy(np.array(images, dtype=native, order="C"))  # a copy: torch takes no reversed axes
    if isinstance(images, Tensor):
        return _of_tensor(images, preprocessing)
    encoded = isinstance(images, (bytes, bytearray, memoryview))
    listed = isinstance(images, Sequence) and not encoded
    if not listed or not all(isinstance(item, (str, Path, Image.Image)) for item in images):
        raise UserError(
            f"images: got {_kinds(images)}. Give file paths or PIL images (one or a list), a uint8 batch "
            "(B, H, W, 3) or (B, 3, H, W), or a float batch made with model.preprocess. What is another thing can "
            "become one of these: list(generator), numpy.stack(arrays), PIL.Image.open(io.BytesIO(encoded))."
        )
    if not images:
        raise UserError("images: the list is empty. Give at least one image.")
    return images


def _of_tensor(batch: Tensor, preprocessing: Preprocessing) -> Sequence[Image.Image] | Tensor:
    shape = tuple(batch.shape)
    if batch.is_meta or batch.layout != torch.strided:
        raise UserError(f"images: a tensor on {batch.device}, {batch.layout}. Give a dense one that has values.")
    if batch.ndim != 4 or 0 in shape:
        advice = " For one image add the batch axis: images[None]." if batch.ndim == 3 else ""
        raise UserError(f"images: a batch has four axes, all longer than 0; this has shape {shape}.{advice}")
    if batch.dtype == torch.uint8:
        return list(_pixels(batch, shape))
    if batch.is_floating_point():
        return _normalised(batch, shape, preprocessing)
    raise UserError(f"images: dtype {batch.dtype}. Give uint8 pixels (0–255), or floats made with model.preprocess.")


def _pixels(batch: Tensor, shape: tuple[int, ...]) -> Iterator[Image.Image]:
    first, last = shape[1] == 3, shape[3] == 3
    if first and last:
        raise UserError(
            f"images: uint8 of shape {shape} can be meant as channels first or channels last. "
            "Give PIL images: [PIL.Image.fromarray(image_HWC) for image_HWC in …]."
        )
    if not first and not last:
        raise UserError(f"images: uint8 of shape {shape}; RGB pixels have shape (B, H, W, 3) or (B, 3, H, W).")
    batch_BHWC = batch.permute(0, 2, 3, 1) if first else batch
    return (Image.fromarray(image_HWC.contiguous().cpu().numpy()) for image_HWC in batch_BHWC)


def _normalised(batch: Tensor, shape: tuple[int, ...], preprocessing: Preprocessing) -> Tensor:
    size = preprocessing.size
    if shape[1:] != (3, size, size):
        raise UserError(
            f"images: floats of shape {shape}; floats must be preprocessed, of shape (B, 3, {size}, {size}). "
            "Make them with torch.stack([model.preprocess(image) for image in images]), or give files or uint8 pixels."
        )
    mean, std = (
        torch.tensor(values, dtype=torch.float32).view(3, 1, 1) for values in (preprocessing.mean, preprocessing.std)
    )
    batch = batch.detach().float()
    low, high = (batch.amin(dim=(0, 2, 3)).cpu().view(3, 1, 1), batch.amax(dim=(0, 2, 3)).cpu().view(3, 1, 1))
    inside = (low >= (0 - mean) / std - ROUNDING) & (high <= (1 - mean) / std + ROUNDING)  # NaN: false
    if not inside.all():
        raise UserError(
            f"images: floats between {low.min():g} and {high.max():g} are not what mean {preprocessing.mean} and std "
            f"{preprocessing.std} make of an image. Give uint8 pixels, or use model.preprocess."
        )
    return batch


def _kinds(images: Any) -> str:
    if isinstance(images, (list, tuple)):
        return "a list of " + ", ".join(sorted({type(item).__name__ for item in images}))
    return type(images).__name__
