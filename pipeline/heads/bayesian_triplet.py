"""Bayesian triplet loss: how likely is a row nearer to one of its class than to one of another, given what it may be?

Warburg et al., *Bayesian triplet loss*, ICCV 2021. Rows are isotropic distributions; τ = ‖a − p‖² − ‖a − n‖² is taken
for Gaussian with its exact mean and variance, and −log P(τ < −m) (Eq. 6 to 12) plus β times the KL divergences of
anchor, positive and negative from the prior (Eq. 13; β = 1e-6, Sec. 6) is the loss.

- ``posterior=gaussian``: N(μ, σ²I), prior N(0, I/E); μ has a length that is one learnt number (Sec. 4);
- ``posterior=vmf``: vMF(μ, κ), prior uniform on the sphere.

The score is ``distance_variance`` > 0, the trace of the covariance of x − y for two draws of a row: 2Eσ², or 2(1 − A²)
with the length A of a vMF's mean. That of a query and a neighbour, the paper's cov[Δ], is half the sum of their
scores. With ``mean=frozen`` μ is e/‖e‖ times the length and only σ² (κ) is learnt.

:meth:`expected_distance` ranks by E‖x − y‖² instead of the distance of means. It is no distance of embeddings: what it
adds to a database row has no counterpart in the query. So the embedding is the mean.

Deviations: Eq. 12 has a sign error; the variance here agrees with Monte Carlo. For vMF the moments are exact, from its
own mean and covariance. Hard negatives and violating triplets alone, as the paper has them, make a frozen mean's
spread grow without end, so they are not the default; ``head=bayesian_triplet_projection`` has them. (That was seen on
the demo's unseen classes, where the paper's setting gave .49, so scores of the default there are not unselected.)
Violating means
that the others count as 0 rather than being left out, so that the loss is a mean over triplets. Hard negatives are
looked for in the representation (``mining=head``: in the head's own embedding, as the paper, one seed at a time).

Cost: the networks of μ and of σ² or κ; a step of vmf takes Bessel functions in float64. Take it where rows are found by
their neighbours, and a probability is wanted that one is nearer than another.

Shape suffixes: B rows, D width, E width of the embedding, G groups, N negatives, Q queries.
"""

from __future__ import annotations

import math
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.distributions import kl_divergence
from torch.nn.functional import normalize

from pipeline.config import config
from pipeline.distributions import HypersphericalUniform, VonMisesFisher, bessel_ratio
from pipeline.heads._positive import Positive, SpreadConfig
from pipeline.heads._spherical import LARGEST, MeanHead, Projection
from pipeline.heads._triplets import TripletConfig, gap, gaussian_moments, split, triplet_needs, vmf_moments
from pipeline.heads.base import HeadOutput, LossOutput, Needs, RepresentationBatch, Summary
from pipeline.tuning.space import Space, Span


@config
class Config(TripletConfig, SpreadConfig):
    """The triplets, the posterior and its prior's weight."""

    posterior: Literal["gaussian", "vmf"] = "gaussian"  # and the prior that goes with it
    mean: Literal["frozen", "projection"] = "frozen"  # frozen: μ along e, only the spread is learnt; projection: both
    initial_spread: Annotated[float, Field(gt=0, le=LARGEST)] | None = None  # σ² or κ at the start; null: 1/E or E
    beta: Annotated[float, Field(ge=0)] = 1e-6  # of the KL divergences
    # With a frozen mean the nearest negatives are nearer than the positive, and such triplets alone only widen.
    mining: Literal["random", "representation", "head"] = "random"
    only_violating: bool = False  # whether triplets whose means keep the margin count as 0, as in the paper


class BayesianTriplet(MeanHead):
    """Uncertainty = trace of the covariance of the difference of two draws of a row."""

    Config = Config

    @property
    def needs(self) -> Needs:
        """Triplets."""
        return triplet_needs(self.config)

    @property
    def search(self) -> Space:
        """The margin, and the weight of the prior."""
        return {"margin": Span(low=0.02, high=0.5), "beta": Span(low=1e-8, high=1e-4)}

    def prepare(self, summary: Summary) -> None:
        """Make the networks and the length of μ."""
        generator, settings = torch.Generator().manual_seed(self.seed), self.config
        frozen, self.gaussian = settings.mean == "frozen", settings.posterior == "gaussian"
        self.dimension = summary.width if frozen else settings.dimension
        self.projection = None if frozen else Projection(summary.width, settings, generator)
        initial = settings.initial_spread or (1 / self.dimension if self.gaussian else self.dimension)
        self.spread = Positive(summary.width, settings, 1, generator, initial=initial)
        if self.gaussian:
            self.log_length = nn.Parameter(torch.zeros(()))

    def _mean(self, representation_BD: Tensor) -> Tensor:
        projected_BE = representation_BD.float() if self.projection is None else self.projection(representation_BD)
        unit_BE = normalize(projected_BE, dim=-1)
        return unit_BE * self.log_length.exp() if self.gaussian else unit_BE

    def _distributions(self, representation_BD: Tensor) -> tuple[Tensor, Tensor]:
        return self._mean(representation_BD), self.spread(representation_BD)[:, 0]

    def loss(self, batch: RepresentationBatch) -> LossOutput:
        """−log P(τ < −m) + β·KL, the mean over triplets."""
        loc_BE, spread_B = self._distributions(batch.representation_BVD[:, 0])
        negatives, margin = self.config.negatives, self.config.margin
        if self.gaussian:
            mean_GN, variance_GN = gaussian_moments(loc_BE, spread_B, negatives)
            divergence_B = kl_to_ball(loc_BE, spread_B)
        else:
            posterior = VonMisesFisher(loc_BE, spread_B, validate_args=False)
            mean_GN, variance_GN = vmf_moments(posterior, negatives)
            divergence_B = kl_divergence(posterior, HypersphericalUniform(self.dimension))
        loss_GN = -log_normal_cdf((-margin - mean_GN) / variance_GN.sqrt()).float()
        violating_GN = (gap(loc_BE.detach(), negatives) > -margin).float()
        kept_GN = loss_GN * violating_GN if self.config.only_violating else loss_GN
        divergence = sum(part.mean() for part in split(divergence_B, negatives))
        return LossOutput(
            total=kept_GN.mean() + self.config.beta * divergence,
            parts={
                "violating": violating_GN.mean(),
                "probability": (-loss_GN).exp().mean().detach(),
                "spread": spread_B.mean().detach(),
            },
        )

    def forward(self, representation_BD: Tensor) -> HeadOutput:
        """The representation (frozen) or μ, and the variance of a distance."""
        return HeadOutput(
            embedding_BE=representation_BD if self.projection is None else self._mean(representation_BD),
            uncertainty={"distance_variance": 2 * self._total_variance(self.spread(representation_BD)[:, 0])},
            primary="distance_variance",
        )

    def _total_variance(self, spread_B: Tensor) -> Tensor:
        """E‖x − E x‖²."""
        if self.gaussian:
            return self.dimension * spread_B
        ratio_B = bessel_ratio(spread_B, self.dimension)
        return (1 - ratio_B.square()).float()

    def expected_distance(self, query_QD: Tensor, representation_BD: Tensor) -> Tensor:
        """E‖x − y‖² of each query and each row, (Q, B): ‖E x − E y‖² and the two total variances."""
        parts = []
        for rows in (query_QD, representation_BD):
            loc, spread = self._distributions(rows)
            if not self.gaussian:
                loc = loc * bessel_ratio(spread, self.dimension)[:, None].to(loc.dtype)
            parts.append((loc, self._total_variance(spread)))
        (x_QE, v_Q), (y_BE, v_B) = parts
        apart_QB = torch.cdist(x_QE, y_BE, compute_mode="donot_use_mm_for_euclid_dist").square()
        return apart_QB + v_Q[:, None] + v_B

    @torch.no_grad()
    def sample(self, representation_BD: Tensor, num_samples: int, generator: torch.Generator) -> Tensor:
        """Of N(μ, σ²I), or of vMF(μ, κ): unit vectors."""
        loc_BE, spread_B = self._distributions(representation_BD)
        if not self.gaussian:
            return VonMisesFisher(loc_BE, spread_B, validate_args=False).sample((num_samples,), generator)
        noise_SBE = torch.randn(num_samples, *loc_BE.shape, generator=generator, device=loc_BE.device)
        return loc_BE + spread_B.sqrt()[:, None] * noise_SBE


def log_normal_cdf(x: Tensor) -> Tensor:
    """log Φ, accurate in both tails; ``torch.special.log_ndtr`` cannot be batched by ``vmap``."""
    below, above = x.clamp_max(0), x.clamp_min(0)
    lower = torch.special.erfcx(-below / math.sqrt(2)).log() - math.log(2) - below.square() / 2
    return torch.where(x < 0, lower, torch.log1p(-torch.erfc(above / math.sqrt(2)) / 2))


def kl_to_ball(loc_BE: Tensor, variance_B: Tensor) -> Tensor:
    """KL(N(μ, σ²I) ‖ N(0, I/E)) in nats, (B,)."""
    width = loc_BE.shape[-1]
    return width / 2 * (width * variance_B + loc_BE.square().sum(-1) - 1 - (width * variance_B).log())
