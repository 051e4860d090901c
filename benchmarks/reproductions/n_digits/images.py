"""N-digit MNIST: N digits side by side, each of which may be occluded (HIB, App. A).

An image is kept as the indices of its digits and of the black squares on them; its pixels are made when they are asked
for. The images of a step are combinations of few digits, since it is the digits that cost.

Shape suffixes: I images, N digits of an image, B images of a step, M digits, H height, W width.
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
    index_IN = _digits_of(label_I, count, digits.value_M, use, generator)
    return Images(
        digits=digits, index_IN=index_IN, label_I=label_I, square_IN3=_squares(index_IN.shape, occlusion, generator)
    )


@dataclass(frozen=True, kw_only=True)
class Step:
    """Images that share digits.

    Attributes:
        pixel_MHW: the digits, some of them with a black square, (M, 1, 28, 28), float32 in [0, 1].
        index_BN: of which of them an image is made.
        label_B: the number it shows; images of a group of neighbours show the same one.
    """

    pixel_MHW: Tensor
    index_BN: Tensor
    label_B: Tensor


def compose(
    digits: Digits,
    use: Tensor,
    labels: Tensor,
    *,
    count: int,
    drawn: int,
    size: int,
    group: int,
    occlusion: float,
    generator: torch.Generator,
) -> Step:
    """Draw digits, each value as often as the others (up to one), and make images of them.

    Args:
        digits: all of them.
        use: indices of those that may be drawn.
        labels: the numbers that may be shown, each with the same chance.
        count: N.
        drawn: M, 10 or more.
        size: how many images, in groups.
        group: images of one number.
        occlusion: as in :func:`make_images`, of the digits that are drawn.
        generator: of everything that is drawn.
    """
    single = make_images(digits, use, torch.arange(10), count=1, size=drawn, occlusion=occlusion, generator=generator)
    label_B = labels[torch.randint(len(labels), (size // group,), generator=generator)].repeat_interleave(group)
    index_BN = _digits_of(label_B, count, single.label_I, torch.arange(drawn), generator)
    return Step(pixel_MHW=single.pixels(), index_BN=index_BN, label_B=label_B)


def _digits_of(label_I: Tensor, count: int, value_M: Tensor, use: Tensor, generator: torch.Generator) -> Tensor:
    """Any of the digits ``use`` that show what is wanted at each place, (I, N)."""
    value_IN = label_I[:, None] // 10 ** torch.arange(count - 1, -1, -1) % 10
    index_IN = torch.empty_like(value_IN)
    for value in range(10):
        pool, wanted = use[value_M[use] == value], value_IN == value
        index_IN[wanted] = pool[torch.randint(len(pool), (int(wanted.sum()),), generator=generator)]
    return index_IN


def _squares(shape: torch.Size, chance: float, generator: torch.Generator) -> Tensor:
    side = SIDE * torch.rand(shape, generator=generator)
    top, left = ((SIDE - side) * torch.rand(shape, generator=generator) for _ in range(2))
    occluded = torch.rand(shape, generator=generator) < chance
    return torch.stack([top, left, side * occluded], dim=-1).round().long()
