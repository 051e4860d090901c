"""The small networks that several heads share."""

from __future__ import annotations

import math
from itertools import pairwise

import torch
from torch import nn


def mlp(width: int, hidden: int, layers: int, outputs: int, generator: torch.Generator) -> nn.Sequential:
    """``layers`` times (Linear, LeakyReLU 0.01), then Linear: (B, ``width``) → (B, ``outputs``).

    The shape of the uncertainty module in *Pretrained visual uncertainties*, App. A, there with 2 layers of 512.
    Weights and biases are uniform in ±1/√(inputs), torch's default for a linear layer, but drawn from ``generator``
    so that nobody else's random state is read or changed.
    """
    sizes = [width, *[hidden] * layers, outputs]
    steps: list[nn.Module] = []
    for inputs, size in pairwise(sizes):
        steps += [linear(inputs, size, generator), nn.LeakyReLU(0.01)]
    return nn.Sequential(*steps[:-1])


def linear(inputs: int, outputs: int, generator: torch.Generator) -> nn.Linear:
    """(B, ``inputs``) → (B, ``outputs``), drawn as :func:`mlp` says."""
    layer: nn.Linear = nn.utils.skip_init(nn.Linear, inputs, outputs)
    bound = 1 / math.sqrt(inputs)
    with torch.no_grad():
        layer.weight.uniform_(-bound, bound, generator=generator)
        layer.bias.uniform_(-bound, bound, generator=generator)
    return layer
