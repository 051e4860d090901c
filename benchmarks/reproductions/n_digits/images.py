"""N-digit MNIST: N digits side by side, each of which may be occluded (HIB, App. A).

An image is kept as the indices of its digits and of the black squares on them; its pixels are made when they are asked
for.

Shape suffixes: I images, N digits of an image, H height, W width.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from benchmarks.reproductions.digits import SIDE, Digits


@dataclass(frozen=True, kw_only=True)
class Images:
    """Images of N digits.

    Attributes:
        digits: what they are made of.
        index_IN: which digits.
        label_I: the number they show, 0 to 10ᴺ − 1.
        square_IN3: of each digit, the top, the left and the side of its black square, in pixels; side 0: none.
    """

    digits: Digits
    index_IN: Tensor
    label_I: Tensor
    square_IN3: Tensor

    def __len__(self) -> int:
        return len(self.label_I)

    def of(self, place_I: Tensor) -> Images:
        """Some of them."""
        return replace(
            self,
            index_IN=self.index_IN[place_I],
            label_I=self.label_I[place_I],
            square_IN3=self.square_IN3[place_I],
        )

    def pixels(self) -> Tensor:
        """(I, 1, 28, 28·N), float32 in [0, 1]."""
        pixel_INHW = self.digits.pixel_M[self.index_IN].float() / 255
        place_W = torch.arange(SIDE)
        top, left, side = (value[..., None] for value in self.square_IN3.unbind(-1))
        in_rows_INH, in_columns_INW = ((place_W >= start) & (place_W < start + side) for start in (top, left))
        pixel_INHW = pixel_INHW * ~(in_rows_INH[..., :, None] & in_columns_INW[..., None, :])
        return pixel_INHW.movedim(1, 2).flatten(2).unsqueeze(1)


def classes(count: int, seen: int, seed: int) -> tuple[Tensor, Tensor]:
    """The numbers 0 to 10ᴺ − 1 (N = ``count``), ``seen`` of them for training and the rest."""
    order = torch.randperm(10**count, generator=torch.Generator().manual_seed(seed))
    return order[:seen].sort().values, order[seen:].sort().values


def make_images(
    digits: Digits, use: Tensor, labels: Tensor, *, count: int, size: int, occlusion: float, generator: torch.Generator
) -> Images:
    """``size`` images of N = ``count`` digits from among ``use``.

    Args:
        digits: all of them.
        use: indices of those that may be shown.
        labels: the numbers to be shown, each as often as the others (up to one).
        count: N.
        size: how many images.
        occlusion: chance of each digit to have a black square: side L of Unif(0, 28), corner of Unif(0, 28 − L)².
        generator: of everything that is drawn.
    """
    label_I = labels[torch.randperm(size, generator=generator) % len(labels)]
    power_N = 10 ** torch.arange(count - 1, -1, -1)
    value_IN = label_I[:, None] // power_N % 10
    index_IN = torch.empty_like(value_IN)
    for value in range(10):
        pool, wanted = use[digits.value_M[use] == value], value_IN == value
        index_IN[wanted] = pool[torch.randint(len(pool), (int(wanted.sum()),), generator=generator)]
    return Images(
        digits=digits, index_IN=index_IN, label_I=label_I, square_IN3=_squares(index_IN.shape, occlusion, generator)
    )


def _squares(shape: torch.Size, chance: float, generator: torch.Generator) -> Tensor:
    side = SIDE * torch.rand(shape, generator=generator)
    top, left = ((SIDE - side) * torch.rand(shape, generator=generator) for _ in range(2))
    occluded = torch.rand(shape, generator=generator) < chance
    return torch.stack([top, left, side * occluded], dim=-1).round().long()
