"""MCInfoNCE: each view is a von Mises–Fisher distribution, and InfoNCE is averaged over samples of them.

*Probabilistic contrastive learning* (Kirchhof 2024, thesis ch. 3 and App. B), Eq. 5 to 7; URL (App. C), B.3 Eq. 2.
Two views of a row are positives, the views of all other rows of the batch its negatives. The score is 1/κ > 0: the
concentration κ(x) that the loss learns is the inverse of the uncertainty. ``mean=frozen``: μ = e/‖e‖ and only κ is
learnt.

- ``reduction=log_mean``: −log mean_s share_s, Eq. 7, which the proofs are about;
- ``reduction=mean_log``: −mean_s log share_s, URL's Eq. 2.

Deviations: the factor 1/M of Eq. 7 is left out, so that the least loss is 0; it has no gradient. As in ``info_nce``
each direction is a softmax of its own. Samples have their exact gradient in κ; public code's is 13 % off at d = 5, κ
= 2.

A batch of B rows compares S·(2B)² pairs; train_head.accumulate runs it in parts that are compared among themselves
(URL: parts of 96 rows).

Shape suffixes: B rows, V = 2 views, D width, E width of the embedding, S samples, N = 2B.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from pipeline.config import config
from pipeline.heads._spherical import Posterior, PosteriorConfig, contrast, cosines
from pipeline.heads.base import Head, HeadOutput, LossOutput, Needs, RepresentationBatch, Summary


@config
class Config(PosteriorConfig):
    """The posterior, and how its samples are compared."""

    inverse_temperature: Annotated[float, Field(gt=0)] = 20.0  # κ_pos of Eq. 5; URL searches 8 to 64
    samples: Annotated[int, Field(ge=1)] = 16  # of each posterior
    reduction: Literal["log_mean", "mean_log"] = "log_mean"  # over samples


class MCInfoNCE(Head):
    """Uncertainty = 1/κ of the posterior vMF(μ, κ)."""

    Config = Config

    def __init__(self, config: Any, *, seed: int = 0) -> None:
        super().__init__(config, seed=seed)
        self.keeps_representation = config.mean == "frozen"

    @property
    def needs(self) -> Needs:
        """Two views of each row; all rows of a batch are compared."""
        return Needs(views=2)

    def prepare(self, summary: Summary) -> None:
        """Make the networks."""
        self.posterior = Posterior(summary.width, self.config, torch.Generator().manual_seed(self.seed))

    def loss(self, batch: RepresentationBatch) -> LossOutput:
        """Mean over the 2B views."""
        posterior = self.posterior(batch.representation_BVD.flatten(0, 1))
        z_SNE = posterior.rsample((self.config.samples,))
        log_share_SN = log_shares(z_SNE, self.config.inverse_temperature)
        return LossOutput(
            total=-reduce(log_share_SN, self.config.reduction).mean(),
            parts={"concentration": posterior.concentration.mean().detach()},
        )

    def forward(self, representation_BD: Tensor) -> HeadOutput:
        """The representation (frozen) or μ, and 1/κ."""
        return HeadOutput(
            embedding_BE=self.posterior.embedding(representation_BD),
            uncertainty={"inverse_concentration": self.posterior.concentration(representation_BD).reciprocal()},
            primary="inverse_concentration",
        )

    def sample(self, representation_BD: Tensor, num_samples: int, generator: torch.Generator) -> Tensor:
        """Of vMF(μ, κ), unit vectors."""
        return self.posterior(representation_BD).sample((num_samples,), generator)


def log_shares(z_SNE: Tensor, inverse_temperature: float) -> Tensor:
    """log of the positive's share for every sample and view, (S, N); see :func:`contrast`.

    The similarities of a sample are made again for the gradient instead of kept: S times (2B)² numbers less.
    """

    def of_one(z_NE: Tensor) -> Tensor:
        return contrast(inverse_temperature * cosines(z_NE, z_NE))

    return torch.stack([checkpoint(of_one, z_NE, use_reentrant=False, preserve_rng_state=False) for z_NE in z_SNE])


def reduce(log_share_SN: Tensor, reduction: str) -> Tensor:
    """Over samples: log of the mean, or mean of the log."""
    if reduction == "mean_log":
        return log_share_SN.mean(0)
    return torch.logsumexp(log_share_SN, dim=0) - math.log(len(log_share_SN))
