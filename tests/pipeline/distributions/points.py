"""Points on spheres, and what a mean of samples may be off by."""

import math

import numpy as np
import torch


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def sphere(polar=60, around=60):
    """Points of S² and their weights: Gauss–Legendre in z, equal steps in the angle around."""
    z, weight = (torch.tensor(value) for value in np.polynomial.legendre.leggauss(polar))
    turn = torch.arange(around, dtype=torch.float64) * (2 * math.pi / around)
    radius = (1 - z * z).sqrt()
    x = torch.stack(
        [
            radius[:, None] * turn.cos(),
            radius[:, None] * turn.sin(),
            z[:, None].expand(-1, around),
        ],
        dim=-1,
    )
    return x.flatten(0, 1), (weight[:, None] * (2 * math.pi / around)).expand(-1, around).flatten()


def within_four_errors(value_N, wanted):
    return abs(value_N.mean() - wanted) < 4 * value_N.std() / math.sqrt(len(value_N)) + 1e-12
