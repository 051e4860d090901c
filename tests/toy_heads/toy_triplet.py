"""The triplet loss on a linear map, for tests of what it needs: groups of an anchor, a positive and negatives.

Schroff et al., FaceNet, CVPR 2015, Eq. 2. The score is the inverse length of the embedding.

Shape suffixes: G groups, B rows, N negatives of a group, D width, E embedding.
"""

from __future__ import annotations

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor, nn

from pipeline.config import config
from pipeline.heads.base import Head, HeadOutput, LossOutput, Mining, Needs, RepresentationBatch, Summary


class ToyTriplet(Head):
    """Uncertainty = 1 / (1 + length of the embedding), in (0, 1]."""

    @config
    class Config:
        """Its sampling, and the loss."""

        negatives: Annotated[int, Field(ge=1)] = 3
        mining: Mining = "random"
        pool: Annotated[int, Field(ge=1)] = 5000
        margin: Annotated[float, Field(ge=0)] = 0.5

    @property
    def needs(self) -> Needs:
        """Triplets; the loss is a mean over them."""
        return Needs(
            labels=True,
            sampling="triplets",
            negatives=self.config.negatives,
            mining=self.config.mining,
            pool=self.config.pool,
            together=2 + self.config.negatives,
        )

    def prepare(self, summary: Summary) -> None:
        """One linear layer."""
        draw = torch.Generator().manual_seed(self.seed)
        self.weight_ED = nn.Parameter(torch.randn(8, summary.width, generator=draw) / summary.width**0.5)

    def loss(self, batch: RepresentationBatch) -> LossOutput:
        """Mean over groups of the hinge over its negatives; refuses what is no triplet."""
        group = 2 + self.config.negatives
        assert batch.label_B is not None
        label_GB = batch.label_B.view(-1, group)
        assert (label_GB[:, 0] == label_GB[:, 1]).all()
        assert (label_GB[:, :1] != label_GB[:, 2:]).all()
        embedding_GBE = (batch.representation_BVD[:, 0] @ self.weight_ED.T).view(*label_GB.shape, -1)
        distance_GB = (embedding_GBE - embedding_GBE[:, :1]).square().sum(-1)
        hinge_GN = (distance_GB[:, 1:2] - distance_GB[:, 2:] + self.config.margin).relu()
        return LossOutput(total=hinge_GN.mean(), parts={"violating": (hinge_GN > 0).float().mean()})

    def forward(self, representation_BD: Tensor) -> HeadOutput:
        """Embedding, and how short it is."""
        embedding_BE = representation_BD.float() @ self.weight_ED.T
        score_B = 1 / (1 + embedding_BE.norm(dim=1))
        return HeadOutput(embedding_BE=embedding_BE, uncertainty={"shortness": score_B}, primary="shortness")
