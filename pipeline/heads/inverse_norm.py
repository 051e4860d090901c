"""Baseline: the inverse of the representation's Euclidean norm.

Networks trained with a softmax tend to give hard images short representations; URL (Kirchhof 2024, thesis ch. 4) uses
this norm as its free baseline. The score is 1/‖e‖ > 0.

Cost: none. The baseline that every head has to beat.

Shape suffixes: B rows, D width.
"""

from __future__ import annotations

import torch
from torch import Tensor

from pipeline.config import config
from pipeline.heads.base import Head, HeadOutput, Needs, Summary


@config
class Config:
    """Nothing to choose."""


class InverseNorm(Head):
    """Uncertainty = 1/‖representation‖; the embedding is the representation itself."""

    Config = Config
    keeps_representation = True

    @property
    def needs(self) -> Needs:
        """No training."""
        return Needs(training=False)

    def prepare(self, summary: Summary) -> None:
        """Nothing to make."""

    def forward(self, representation_BD: Tensor) -> HeadOutput:
        """The representation untouched, and its inverse norm (finite at zero: the smallest normal number stands in)."""
        norm_B = torch.linalg.vector_norm(representation_BD.float(), dim=-1)
        inverse_B = norm_B.clamp_min(torch.finfo(torch.float32).tiny).reciprocal()
        return HeadOutput(
            embedding_BE=representation_BD, uncertainty={"inverse_norm": inverse_B}, primary="inverse_norm"
        )
