"""The images: Fashion-MNIST's, to learn, to choose settings and to be tested on, and digits, which are strangers.

Shape suffixes: I images, H height, W width.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.reproductions.digits import load_digits
from pipeline.datasets._idx import read_idx
from pipeline.datasets.fashion_mnist import FashionMnist


@dataclass(frozen=True, kw_only=True)
class Images:
    """Grey images of one class each.

    Attributes:
        pixel_IHW: uint8.
        label_I: int64.
    """

    pixel_IHW: Tensor
    label_I: Tensor

    def __len__(self) -> int:
        return len(self.label_I)

    def of(self, place_I: Tensor) -> Images:
        """Some of them."""
        return replace(self, pixel_IHW=self.pixel_IHW[place_I], label_I=self.label_I[place_I])

    def some(self, count: int, seed: int) -> Images:
        """At most ``count`` of them, any."""
        order = torch.randperm(len(self), generator=torch.Generator().manual_seed(seed))
        return self.of(order[:count])

    def pixels(self) -> Tensor:
        """(I, 1, H, W), float32 in [0, 1]."""
        return self.pixel_IHW[:, None].float() / 255


def load_fashion(root: Path) -> dict[str, Images]:
    """The authors' ``train`` and ``test`` parts.

    Raises:
        UserError: the files are not there, or not whole; how to get them.
    """
    made = {}
    for part in ("train", "test"):
        dataset = FashionMnist(FashionMnist.Config(root=root, part=part))
        dataset.check()
        [(_, *paths)] = dataset.parts()
        pixel_IHW, label_I = (torch.from_numpy(read_idx(path).copy()) for path in paths)
        made[part] = Images(pixel_IHW=pixel_IHW, label_I=label_I.long())
    return made


def load_strangers(root: Path) -> Images:
    """All digits of the package."""
    digits = load_digits(root)
    return Images(pixel_IHW=digits.pixel_M, label_I=digits.value_M)


def held_out(train: Images, count: int, seed: int) -> tuple[Images, Images]:
    """Training images to learn from, and ``count`` that are not."""
    order = torch.randperm(len(train), generator=torch.Generator().manual_seed(seed))
    return train.of(order[count:]), train.of(order[:count])
