"""The encoder: x ↦ vMF(μ̂(x), κ̂(x)) (thesis App. B, B.1 and B.8).

Shape suffixes: N inputs, X their width, D dimension of the latents.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from benchmarks.reproductions.controlled.process import InRange
from benchmarks.reproductions.controlled.settings import Settings
from pipeline.distributions import VonMisesFisher
from pipeline.heads._mlp import mlp
from pipeline.heads._spherical import LARGEST, LEAST

START = (16.0, 32.0)  # of κ̂ before training where that of κ is infinite


class Encoder(nn.Module):
    """Two networks, or one upon the other."""

    def __init__(self, settings: Settings, generator: torch.Generator) -> None:
        super().__init__()
        width, self.shared = settings.dimension, settings.shared
        of_kappa = settings.encoder_dimension if self.shared else width
        self.direction = mlp(width, settings.hidden, settings.layers, settings.encoder_dimension, generator)
        network = mlp(of_kappa, settings.hidden, settings.layers, 1, generator)
        sample_NX = torch.rand(1000, width, generator=generator)
        with torch.no_grad():
            sample_NX = self.direction(_standard(sample_NX)) if self.shared else _standard(sample_NX)
        least, largest = settings.least or START[0], settings.largest or START[1]
        self.concentration = InRange(network, least, largest, sample_NX)

    def forward(self, x_NX: Tensor) -> VonMisesFisher:
        """The posterior of each input."""
        x_NX = _standard(x_NX)
        raw_ND = self.direction(x_NX)
        kappa_N = self.concentration(raw_ND if self.shared else x_NX).clamp(LEAST, LARGEST)
        return VonMisesFisher(normalize(raw_ND, dim=-1), kappa_N, validate_args=False)


def _standard(x_NX: Tensor) -> Tensor:
    """Mean 0 and variance 1: else all outputs lie together at the start, and it takes long until they part."""
    return (x_NX - 0.5) * math.sqrt(12)
