"""One image as the backbone wants it, for whoever feeds a data loader.

Shapes: size = side of the backbone's input.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from pipeline.backbones.normalise import normalise
from pipeline.errors import UserError
from pipeline.images.decode import decode, upright_rgb
from pipeline.images.preprocessing import Preprocessing
from pipeline.images.views import AugmentationConfig, make_views
from pipeline.release.inputs import OneImage


@dataclass(frozen=True)
class Preprocess:
    """What the evaluation did with an image; apart from the model, so that workers of a data loader get no copy of it.

    Attributes:
        preprocessing: of the backbone.
    """

    preprocessing: Preprocessing

    def __call__(self, image: OneImage) -> Tensor:
        """float32 (3, size, size), normalised, on the CPU.

        The image upright and in RGB, transparency on white, resized and cut centrally.

        Raises:
            UserError: no path and no PIL image, or a file that cannot be read or decoded.
        """
        return normalise(self.pixels(image), self.preprocessing).contiguous()

    def pixels(self, image: OneImage, place: int = 0) -> Tensor:
        """The centre view: uint8 (size, size, 3); ``place`` among those that were given."""
        return center_view(_open(image, place), self.preprocessing)


def center_view(image: Image.Image, preprocessing: Preprocessing) -> Tensor:
    """The ``center`` view of an upright RGB image, as the store holds it: uint8 (size, size, 3)."""
    views = make_views(
        image,
        "",  # a key: the centre view draws no random numbers
        views=("center",),
        seed=0,
        preprocessing=preprocessing,
        augmentation=AugmentationConfig(),
    )
    return torch.from_numpy(np.ascontiguousarray(views.pixels[0]))


def _open(image: OneImage, place: int) -> Image.Image:
    if not isinstance(image, (str, Path, Image.Image)):
        raise UserError(
            f"images: model.preprocess takes one path or PIL image, not {type(image).__name__}. What is another thing "
            "can become one: PIL.Image.fromarray(pixels_HWC), PIL.Image.open(io.BytesIO(encoded))."
        )
    named = f"the PIL image at index {place}" if isinstance(image, Image.Image) else str(image)
    try:
        return upright_rgb(image) if isinstance(image, Image.Image) else decode(Path(image).read_bytes())
    except OSError as error:
        raise UserError(f"images: {named} cannot be read ({error.strerror or error}).") from error
    except ValueError as error:  # a bad image, or a path with a null byte
        raise UserError(f"images: {named}: {error}.") from error
