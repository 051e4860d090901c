"""Baseline: chance. A uniform number that says nothing about the image.

The number is a hash of the seed and of the representation's own bits, not a draw from a stream: so it is the same
whatever the batch, the order of rows or the device, as :meth:`Head.forward` promises, and a row keeps its number when
rows are permuted. Equal representations get equal numbers. The score is in [0, 1).

Cost: none. What a score has to be better than.

Shape suffixes: B rows, D width.
"""

from __future__ import annotations

import torch
from torch import Tensor

from pipeline.config import config
from pipeline.heads.base import Head, HeadOutput, Needs, Summary


@config
class Config:
    """Nothing to choose; ``seed`` gives other numbers."""


class Random(Head):
    """Uncertainty = pseudo-random in [0, 1); the embedding is the representation itself."""

    Config = Config
    keeps_representation = True

    @property
    def needs(self) -> Needs:
        """No training."""
        return Needs(training=False)

    def prepare(self, summary: Summary) -> None:
        """Nothing to make."""

    def forward(self, representation_BD: Tensor) -> HeadOutput:
        """The representation untouched, and a number that depends on its bits alone."""
        bits_BD = representation_BD.float().contiguous().view(torch.int32).long()
        place_D = torch.arange(1, bits_BD.shape[1] + 1, device=bits_BD.device)
        mixed_BD = _mix(bits_BD + _GOLDEN * place_D)
        hash_B = _mix(mixed_BD.sum(dim=1) + _signed((self.seed + 1) * _GOLDEN % (1 << 64)))
        uniform_B = (hash_B & ((1 << 24) - 1)).float() / (1 << 24)
        return HeadOutput(embedding_BE=representation_BD, uncertainty={"random": uniform_B}, primary="random")


def _signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value


# The constants of SplitMix64 (Steele, Lea and Flood 2014, "Fast splittable pseudorandom number generators", Fig. 17).
_GOLDEN = _signed(0x9E3779B97F4A7C15)
_FIRST = _signed(0xBF58476D1CE4E5B9)
_SECOND = _signed(0x94D049BB133111EB)


def _shift_xor(value: Tensor, bits: int) -> Tensor:
    """value ⊕ (value ≫ bits) with a logical shift, which torch lacks for signed integers."""
    return value ^ ((value >> bits) & ((1 << (64 - bits)) - 1))


def _mix(value: Tensor) -> Tensor:
    """SplitMix64's finaliser on int64; products wrap modulo 2⁶⁴."""
    value = _shift_xor(value, 30) * _FIRST
    value = _shift_xor(value, 27) * _SECOND
    return _shift_xor(value, 31)
