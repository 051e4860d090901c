"""Triplet loss: a projection learns that a row is nearer to one of its class than to one of another, by a margin.

Schroff et al., FaceNet, CVPR 2015, as *Bayesian triplet loss* (Warburg et al., ICCV 2021) has it, Eq. 2 and Sec. 4:
projections of length 1, several negatives for each anchor, the nearest of a pool. The head has no uncertainty of its
own, so the inverse length of the projection before it is scaled stands in, as in ``info_nce``: the score is
1/‖projection‖ > 0.

Deviations: the projection is a network on the frozen representation. Negatives are looked for in the representation by
default (``mining=head``: in the head's own embedding, as Warburg et al., one seed at a time).

Cost: the projection alone. Take it as the reference of ``bayesian_triplet`` and ``triplet_regression``.

Shape suffixes: B rows, D width, E width of the embedding, G groups, N negatives.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import normalize

from pipeline.heads._spherical import Projection
from pipeline.heads._triplets import TripletConfig, gap, triplet_needs
from pipeline.heads.base import Head, HeadOutput, LossOutput, Needs, RepresentationBatch, Summary
from pipeline.tuning.space import Space, Span

Config = TripletConfig


class Triplet(Head):
    """Uncertainty = 1/‖projection‖; the embedding is the projection, scaled to length 1."""

    Config = Config

    @property
    def needs(self) -> Needs:
        """Triplets."""
        return triplet_needs(self.config)

    @property
    def search(self) -> Space:
        """The margin."""
        return {"margin": Span(low=0.02, high=0.5)}

    def prepare(self, summary: Summary) -> None:
        """Make the projection."""
        self.projection = Projection(summary.width, self.config, torch.Generator().manual_seed(self.seed))

    def loss(self, batch: RepresentationBatch) -> LossOutput:
        """max(0, τ + m), the mean over triplets."""
        loc_BE = normalize(self.projection(batch.representation_BVD[:, 0]), dim=-1)
        hinge_GN = (gap(loc_BE, self.config.negatives) + self.config.margin).relu()
        return LossOutput(total=hinge_GN.mean(), parts={"violating": (hinge_GN > 0).float().mean()})

    def forward(self, representation_BD: Tensor) -> HeadOutput:
        """The projection's direction, and its inverse length (finite at zero)."""
        projected_BE = self.projection(representation_BD)
        norm_B = torch.linalg.vector_norm(projected_BE, dim=-1)
        return HeadOutput(
            embedding_BE=normalize(projected_BE, dim=-1),
            uncertainty={"inverse_norm": norm_B.clamp_min(torch.finfo(torch.float32).tiny).reciprocal()},
            primary="inverse_norm",
        )
