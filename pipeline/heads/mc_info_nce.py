"""MCInfoNCE: each view is a von Mises–Fisher distribution, and InfoNCE is averaged over samples of them.

*Probabilistic contrastive learning* (Kirchhof 2024, thesis ch. 3 and App. B), Eq. 5 to 7; URL (App. C), B.3 Eq. 2.
Two views of a row are positives, the views of all other rows of the batch its negatives; or as ``positives`` and
``negatives`` say. The score is 1/κ > 0: the concentration κ(x) that the loss learns is the inverse of the uncertainty.
``mean=frozen``: μ = e/‖e‖ and only κ is learnt.

- ``reduction=log_mean``: −log mean_s share_s, Eq. 7, which the proofs are about;
- ``reduction=mean_log``: −mean_s log share_s, URL's Eq. 2.

Deviations: the factor 1/M of Eq. 7 is left out, so that the least loss is 0; it has no gradient. As in ``info_nce``
each direction is a softmax of its own. Samples have their exact gradient in κ; public code's is 13 % off at d = 5, κ
= 2.

Cost: a batch of B rows compares S·(2B)² pairs; train_head.accumulate runs it in parts that are compared among
themselves (URL: parts of 96 rows). Take it where there are no labels: of such heads URL found its scores to carry over
best.

Shape suffixes: B rows, V = 2 views, D width, E width of the embedding, S samples, P pairs, N = 2P, M negatives.
"""

from __future__ import annotations

import math
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from pipeline.config import config
from pipeline.distributions import VonMisesFisher
from pipeline.heads._pairs import PairsConfig, pair_needs, pairs_of
from pipeline.heads._spherical import Posterior, PosteriorHead, contrast, contrast_with, cosines
from pipeline.heads.base import LossOutput, Needs, RepresentationBatch, Summary
from pipeline.tuning.space import Space, Span


@config
class Config(PairsConfig):
    """The posterior, and how its samples are compared."""

    inverse_temperature: Annotated[float, Field(gt=0)] = 20.0  # κ_pos of Eq. 5; URL searches 8 to 64
    samples: Annotated[int, Field(ge=1)] = 16  # of each posterior
    reduction: Literal["log_mean", "mean_log"] = "log_mean"  # over samples


class MCInfoNCE(PosteriorHead):
    """Uncertainty = 1/κ of the posterior vMF(μ, κ)."""

    Config = Config

    @property
    def needs(self) -> Needs:
        """Pairs, and what they are contrasted with."""
        return pair_needs(self.config, draws=True)

    @property
    def search(self) -> Space:
        """As URL, App. B, and warmer: frozen directions lie close to each other (see ``elk``)."""
        largest = 256.0 if self.config.mean == "frozen" else 64.0
        temperatures = Span(low=8.0, high=largest)
        return {"inverse_temperature": temperatures, "initial_concentration": Span(low=64.0, high=4096.0)}

    def prepare(self, summary: Summary) -> None:
        """Make the networks."""
        self.posterior = Posterior(summary.width, self.config, torch.Generator().manual_seed(self.seed))

    def loss(self, batch: RepresentationBatch) -> LossOutput:
        """Mean over the rows of all pairs."""
        pairs = pairs_of(batch, self.config)
        posterior = self.posterior(pairs.x_ND)
        drawn = None if pairs.negative_PMD is None else self.posterior(pairs.negative_PMD)
        return LossOutput(
            total=contrastive_loss(posterior, self.config, drawn, pairs.label_N),
            parts={"concentration": posterior.concentration.mean().detach()},
        )


def contrastive_loss(
    posterior: VonMisesFisher,
    config: Config,
    negatives: VonMisesFisher | None = None,
    label_N: Tensor | None = None,
    *,
    averaged: bool = False,
) -> Tensor:
    """The loss, a mean over the 2P rows.

    Args:
        posterior: of 2P rows; (0, 1), (2, 3), … are alike.
        config: temperature, samples and reduction.
        negatives: (M,), of inputs drawn apart from the batch (App. B Eq. 4), or (P, M), of each pair its own; None: all
            rows of other pairs. Sample s of a row is compared with sample s of its positive and of its negatives, as in
            Eq. 7.
        label_N: in the last case, rows of the same label are no negatives of each other.
        averaged: the negatives count together as one, so that the share of the positive is the probability that a pair
            is positive rather than drawn apart (Eq. 53); in Eq. 7 each counts as much as the positive.
    """
    z_SNE, t = posterior.rsample((config.samples,)), config.inverse_temperature
    if negatives is None:
        return -reduce(log_shares(z_SNE, t, label_N), config.reduction).mean()
    z_SP2E, negative_SXE = z_SNE.unflatten(1, (-1, 2)), negatives.rsample((config.samples,))
    positive_SP = (z_SP2E[:, :, 0] * z_SP2E[:, :, 1]).sum(-1)
    if negative_SXE.ndim == 4:
        negative_SP2M = cosines(z_SP2E, negative_SXE)
    else:  # the same for all pairs
        negative_SP2M = cosines(z_SNE, negative_SXE).unflatten(1, (-1, 2))
    as_one = math.log(negative_SP2M.shape[-1]) if averaged else 0.0
    log_share_SN = contrast_with(t * positive_SP[..., None], t * negative_SP2M - as_one).flatten(1)
    return -reduce(log_share_SN, config.reduction).mean()


def log_shares(z_SNE: Tensor, inverse_temperature: float, label_N: Tensor | None = None) -> Tensor:
    """log of the positive's share for every sample and row, (S, N); see :func:`contrast`.

    The similarities of a sample are made again for the gradient instead of kept: S times (2B)² numbers less.
    """

    def of_one(z_NE: Tensor) -> Tensor:
        return contrast(inverse_temperature * cosines(z_NE, z_NE), label_N)

    return torch.stack([checkpoint(of_one, z_NE, use_reentrant=False, preserve_rng_state=False) for z_NE in z_SNE])


def reduce(log_share_SN: Tensor, reduction: str) -> Tensor:
    """Over samples: log of the mean, or mean of the log."""
    if reduction == "mean_log":
        return log_share_SN.mean(0)
    return torch.logsumexp(log_share_SN, dim=0) - math.log(len(log_share_SN))
