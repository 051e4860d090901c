"""A running mean of representations and of progress, for tests of state that follows the batches.

No source. The score is the distance from the mean.

Shape suffixes: B rows, D width.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from pipeline.config import config
from pipeline.heads.base import Head, HeadOutput, LossOutput, Needs, RepresentationBatch, Summary, carried


class ToyRunning(Head):
    """Uncertainty = distance from a mean that forgets."""

    keeps_representation = True

    @config
    class Config:
        """No settings."""

    @property
    def needs(self) -> Needs:
        """How far training is."""
        return Needs(progress=True, together=1)

    def prepare(self, summary: Summary) -> None:
        """The mean, how far training was, and a weight that the optimiser changes."""
        self.mean_D = nn.Parameter(torch.zeros(summary.width))
        self.steps = nn.Parameter(torch.zeros(()))
        self.progress = nn.Parameter(torch.zeros(()))
        self.scale_1 = nn.Parameter(torch.ones(1))
        self.running = {"mean_D": 0.75, "steps": 1.0, "progress": 0.0}

    def loss(self, batch: RepresentationBatch) -> LossOutput:
        """Length that is to become 1; beside it what is carried."""
        assert batch.progress_B is not None
        x_BD = batch.representation_BVD[:, 0]
        total = ((x_BD * self.scale_1).square().mean(-1) - 1).square().mean()
        total = total + carried(self.mean_D, 0.25 * x_BD.mean(0)) + carried(self.steps, torch.ones(()))
        return LossOutput(total=total + carried(self.progress, batch.progress_B.mean()))

    def forward(self, representation_BD: Tensor) -> HeadOutput:
        """The representation, and its distance from the mean."""
        distance_B = (representation_BD.float() - self.mean_D).norm(dim=1) * self.scale_1.abs()
        return HeadOutput(embedding_BE=representation_BD, uncertainty={"distance": distance_B}, primary="distance")
