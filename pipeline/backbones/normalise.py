"""Pixels as they are stored → numbers as a backbone expects them."""

from __future__ import annotations

import torch
from torch import Tensor

from pipeline.images.preprocessing import Preprocessing


def normalise(pixels: Tensor, preprocessing: Preprocessing) -> Tensor:
    """uint8 pixels of shape (…, H, W, C) → float32 of shape (…, C, H, W).

    The memory stays as it is, so four axes come out channels-last.
    """
    mean, std = (
        torch.tensor(values, dtype=torch.float32, device="cpu").to(pixels.device, non_blocking=True)
        for values in (preprocessing.mean, preprocessing.std)
    )
    return ((pixels.float() / 255 - mean) / std).movedim(-1, -3)
