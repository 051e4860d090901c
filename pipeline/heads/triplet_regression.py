"""Triplet regression: the triplet loss is taken for a squared residual, whose variance is learnt for each row.

Taha et al., *Unsupervised data uncertainty learning in visual retrieval systems*, 2019: the triplet loss as a
regression with heteroscedastic noise, ℓ/(2σ²) + ½ log σ²; reference of *Bayesian triplet loss* (Warburg et al., ICCV
2021, Sec. 6). The score is ``variance``, σ² > 0: the triplet loss ℓ = max(0, τ + m) that the row is expected to have
as an anchor, in squared distance. ``mean=frozen``: the distances are those of e/‖e‖ and only σ² is learnt.

Deviations: written from what Warburg et al. say of it and the common form of such regressions, without the paper's own
equations at hand. σ² is that of the anchor. The loss has no lower bound where ℓ = 0 and σ² → 0; the smallest σ² is
1e-6. Negatives are looked for in the representation by default.

Cost: the projection and the network of σ². Take it as the reference of ``bayesian_triplet``.

Shape suffixes: B rows, D width, E width of the embedding, G groups, N negatives.
"""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import normalize

from pipeline.config import config
from pipeline.heads._positive import Positive, SpreadConfig
from pipeline.heads._spherical import MeanHead, Projection
from pipeline.heads._triplets import TripletConfig, gap, split, triplet_needs
from pipeline.heads.base import HeadOutput, LossOutput, Needs, RepresentationBatch, Summary
from pipeline.tuning.space import Space, Span


@config
class Config(TripletConfig, SpreadConfig):
    """The triplets, the mean and the variance."""

    mean: Literal["frozen", "projection"] = "frozen"  # frozen: μ = e/‖e‖, only σ² is learnt; projection: μ too
    initial_variance: Annotated[float, Field(gt=0)] = 1.0  # σ² at the start, about


class TripletRegression(MeanHead):
    """Uncertainty = σ², the expected triplet loss of a row as an anchor."""

    Config = Config

    @property
    def needs(self) -> Needs:
        """Triplets."""
        return triplet_needs(self.config)

    @property
    def search(self) -> Space:
        """The margin, and the variance at the start."""
        return {"margin": Span(low=0.02, high=0.5), "initial_variance": Span(low=0.1, high=10.0)}

    def prepare(self, summary: Summary) -> None:
        """Make the networks."""
        generator, settings = torch.Generator().manual_seed(self.seed), self.config
        self.projection = None if settings.mean == "frozen" else Projection(summary.width, settings, generator)
        self.variance = Positive(summary.width, settings, 1, generator, initial=settings.initial_variance)

    def _mean(self, representation_BD: Tensor) -> Tensor:
        projected_BE = representation_BD.float() if self.projection is None else self.projection(representation_BD)
        return normalize(projected_BE, dim=-1)

    def loss(self, batch: RepresentationBatch) -> LossOutput:
        """ℓ/(2σ²) + ½ log σ² with the anchor's σ², the mean over triplets."""
        x_BD, negatives = batch.representation_BVD[:, 0], self.config.negatives
        hinge_GN = (gap(self._mean(x_BD), negatives) + self.config.margin).relu()
        variance_G1, _, _ = split(self.variance(x_BD)[:, 0], negatives)
        total = (hinge_GN / variance_G1 + variance_G1.log()).mean() / 2
        return LossOutput(total=total, parts={"triplet": hinge_GN.mean().detach()})

    def forward(self, representation_BD: Tensor) -> HeadOutput:
        """The representation (frozen) or μ, and σ²."""
        return HeadOutput(
            embedding_BE=representation_BD if self.projection is None else self._mean(representation_BD),
            uncertainty={"variance": self.variance(representation_BD)[:, 0]},
            primary="variance",
        )
