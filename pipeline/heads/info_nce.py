"""InfoNCE: a projection learns that two views of a row are alike; short projections are taken for unsure.

*URL* (Kirchhof 2024, thesis ch. 4 and App. C), 4.1 and B.2 Eq. 1, after SimCLR: two views of a row are positives, the
views of all other rows of the batch negatives, cosines times an inverse temperature t. The head has no uncertainty of
its own, so the inverse length of the projection before it is scaled stands in: the score is 1/‖projection‖ > 0.

Deviations: Eq. 1 has the positive's −t·e₁ᵀe₂ once beside two logarithms, so that it would push more than it pulls;
here each direction is a softmax of its own, as in SimCLR (NT-Xent), and the loss is their mean. URL writes u = ‖e‖
for the score in 4.1; higher must mean less sure, so it is the inverse. The backbone is frozen: only the projection
learns.

Cost: the projection; a step compares (2B)² pairs of views. Take it as the baseline of heads that learn without labels.

Shape suffixes: B rows, V = 2 views, D width, E width of the projection, N = 2B, M negatives.
"""

from __future__ import annotations

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import normalize

from pipeline.config import config
from pipeline.heads._spherical import Projection, ProjectionConfig, contrast, contrast_with, cosines, of_partners
from pipeline.heads.base import Head, HeadOutput, LossOutput, Needs, RepresentationBatch, Summary
from pipeline.tuning.space import Space, Span


@config
class Config(ProjectionConfig):
    """The projection, and how sharply cosines are compared."""

    inverse_temperature: Annotated[float, Field(gt=0)] = 20.0  # t of Eq. 1; URL searches 8 to 64


class InfoNCE(Head):
    """Uncertainty = 1/‖projection‖; the embedding is the projection, scaled to length 1."""

    Config = Config

    @property
    def needs(self) -> Needs:
        """Two views of each row; all rows of a batch are compared."""
        return Needs(views=2)

    @property
    def search(self) -> Space:
        """URL, App. B."""
        return {"inverse_temperature": Span(low=8.0, high=64.0)}

    def prepare(self, summary: Summary) -> None:
        """Make the projection."""
        self.projection = Projection(summary.width, self.config, torch.Generator().manual_seed(self.seed))

    def loss(self, batch: RepresentationBatch) -> LossOutput:
        """Mean over the 2B views."""
        e_NE = normalize(self.projection(batch.representation_BVD.flatten(0, 1)), dim=-1)
        log_share_N = log_shares(e_NE, self.config.inverse_temperature)
        return LossOutput(total=-log_share_N.mean(), parts={"share": log_share_N.exp().mean().detach()})

    def forward(self, representation_BD: Tensor) -> HeadOutput:
        """The projection's direction, and its inverse length (finite at zero)."""
        projected_BE = self.projection(representation_BD)
        norm_B = torch.linalg.vector_norm(projected_BE, dim=-1)
        return HeadOutput(
            embedding_BE=normalize(projected_BE, dim=-1),
            uncertainty={"inverse_norm": norm_B.clamp_min(torch.finfo(torch.float32).tiny).reciprocal()},
            primary="inverse_norm",
        )


def log_shares(e_NE: Tensor, inverse_temperature: float, negative_ME: Tensor | None = None) -> Tensor:
    """log of the positive's share for each view, (N,); minus its mean is the loss.

    Args:
        e_NE: unit vectors of 2B views; (0, 1), (2, 3), … are the two views of a row.
        inverse_temperature: t.
        negative_ME: unit vectors of M inputs drawn apart from the batch; None: the views of all other rows.
    """
    if negative_ME is None:
        return contrast(inverse_temperature * cosines(e_NE, e_NE))
    positive_N = of_partners((e_NE[0::2] * e_NE[1::2]).sum(-1))
    return contrast_with(inverse_temperature * positive_N, inverse_temperature * cosines(e_NE, negative_ME))
