"""The posteriors of hedged instance embeddings, and the probability that two of them match.

Shape suffixes: B rows, D width of the representation, E width of the embedding, K components (1 for a single
Gaussian), S samples of a component, M = S·K samples of a row, P pairs of rows, Q pairs of samples, T nodes.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributions import kl_divergence
from torch.nn.functional import logsigmoid, normalize, softplus

from pipeline.distributions import (
    GaussianMixture,
    HypersphericalUniform,
    cosine_quadrature,
    diagonal_gaussian,
    kl_to_standard_normal,
)
from pipeline.heads._mlp import mlp
from pipeline.heads._spherical import LARGEST, LEAST, UNIT, Posterior, SpreadNetwork


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """Samples of the rows of a batch and each row's KL divergence from the prior, in nats."""

    z_BME: Tensor
    divergence_B: Tensor


class MatchPosterior(nn.Module, ABC):
    """p(z|x) and how samples are compared."""

    @abstractmethod
    def draw(self, representation_BD: Tensor, samples: int) -> Drawn:
        """Samples with gradients, from torch's own generator."""

    @abstractmethod
    def similarity(self, z_PME: Tensor, other_PME: Tensor) -> Tensor:
        """What a multiplies in the log odds of a match, for all pairs of samples of a pair of rows, (P, M, M)."""

    @abstractmethod
    def self_similarity(self, representation_BD: Tensor) -> tuple[Tensor, Tensor]:
        """The same for Q pairs of points of each row's distribution, and their weights, (B, Q); nothing is drawn."""

    @abstractmethod
    def spread(self, representation_BD: Tensor) -> dict[str, Tensor]:
        """How wide it is, by name, (B,)."""

    @abstractmethod
    def embedding(self, representation_BD: Tensor) -> Tensor:
        """What retrieval uses: the representation itself where the mean is frozen, else the mean."""

    @abstractmethod
    def sample(self, representation_BD: Tensor, samples: int, generator: torch.Generator) -> Tensor:
        """(S, B, E)."""


class GaussianPosterior(MatchPosterior):
    """A diagonal Gaussian, or K of them with weights 1/K."""

    noise_2ME: Tensor

    def __init__(self, width: int, config: Any, generator: torch.Generator) -> None:
        super().__init__()
        self.components = config.components if config.posterior == "mixture" else 1
        frozen = config.mean == "frozen"
        self.dimension = width if frozen else config.dimension
        outputs, self.projection = self.components * self.dimension, None
        if not frozen:
            self.projection = mlp(width, config.projection_hidden, config.projection_layers, outputs, generator)
        self.network = SpreadNetwork(width, config, outputs, generator)
        self.unit = config.initial_scale / UNIT
        noise_2ME = torch.randn(2, config.samples * self.components, self.dimension, generator=generator)
        self.register_buffer("noise_2ME", noise_2ME, persistent=False)

    def components_of(self, representation_BD: Tensor) -> tuple[Tensor, Tensor]:
        """Means and standard deviations, (B, K, E), float32."""
        x_BD, shape = representation_BD.float(), (-1, self.components, self.dimension)
        loc = normalize(x_BD, dim=-1) if self.projection is None else self.projection(x_BD).float()
        scale = (self.unit * softplus(self.network(x_BD))).clamp(LEAST, LARGEST)
        return loc.view(shape), scale.view(shape)

    def draw(self, representation_BD: Tensor, samples: int) -> Drawn:
        """The same number of each component; of a mixture the divergence is estimated from the samples."""
        loc_BKE, scale_BKE = self.components_of(representation_BD)
        mixture = GaussianMixture(loc_BKE, scale_BKE, validate_args=False)
        z_MBE, _ = mixture.stratified_rsample(samples)
        if self.components == 1:
            single = diagonal_gaussian(loc_BKE[:, 0], scale_BKE[:, 0], validate_args=False)
            return Drawn(z_BME=z_MBE.movedim(0, 1), divergence_B=kl_to_standard_normal(single))
        prior_MB = -(z_MBE.square().sum(-1) + self.dimension * math.log(2 * math.pi)) / 2
        return Drawn(z_BME=z_MBE.movedim(0, 1), divergence_B=(mixture.log_prob(z_MBE) - prior_MB).mean(0))

    def similarity(self, z_PME: Tensor, other_PME: Tensor) -> Tensor:
        """−‖z₁ − z₂‖ (Eq. 2)."""
        return -torch.cdist(z_PME, other_PME, compute_mode="donot_use_mm_for_euclid_dist")

    def self_similarity(self, representation_BD: Tensor) -> tuple[Tensor, Tensor]:
        """All pairs of two sets of samples by fixed noise, each of as many samples as in training."""
        loc_BKE, scale_BKE = self.components_of(representation_BD)
        repeats = self.noise_2ME.shape[1] // self.components
        loc_BME, scale_BME = (value.repeat_interleave(repeats, dim=1) for value in (loc_BKE, scale_BKE))
        first, second = (loc_BME + scale_BME * noise_ME for noise_ME in self.noise_2ME)
        similarity_BQ = self.similarity(first, second).flatten(1)
        return similarity_BQ, torch.full_like(similarity_BQ, 1 / similarity_BQ.shape[1])

    def spread(self, representation_BD: Tensor) -> dict[str, Tensor]:
        """Variance: the mean over dimensions, with that between the components."""
        loc_BKE, scale_BKE = self.components_of(representation_BD)
        variance_BE = scale_BKE.square().mean(1) + loc_BKE.var(1, correction=0)
        return {"variance": variance_BE.mean(-1)}

    def embedding(self, representation_BD: Tensor) -> Tensor:
        """The mean of all components."""
        return representation_BD if self.projection is None else self.components_of(representation_BD)[0].mean(1)

    @torch.no_grad()
    def sample(self, representation_BD: Tensor, samples: int, generator: torch.Generator) -> Tensor:
        """Of the mixture."""
        loc_BKE, scale_BKE = self.components_of(representation_BD)
        shape, place = (samples, len(loc_BKE)), loc_BKE.device
        component_SB = torch.randint(self.components, shape, generator=generator, device=place)
        noise_SBE = torch.randn((*shape, self.dimension), generator=generator, device=place)
        row_B = torch.arange(len(loc_BKE), device=place)
        return loc_BKE[row_B, component_SB] + scale_BKE[row_B, component_SB] * noise_SBE


class VonMisesFisherPosterior(MatchPosterior):
    """vMF(μ, κ)."""

    def __init__(self, width: int, config: Any, generator: torch.Generator) -> None:
        super().__init__()
        self.posterior = Posterior(width, config, generator)

    def draw(self, representation_BD: Tensor, samples: int) -> Drawn:
        """The divergence is that from the uniform distribution."""
        posterior = self.posterior(representation_BD)
        uniform = HypersphericalUniform(posterior.dimension)
        return Drawn(z_BME=posterior.rsample((samples,)).movedim(0, 1), divergence_B=kl_divergence(posterior, uniform))

    def similarity(self, z_PME: Tensor, other_PME: Tensor) -> Tensor:
        """The cosine."""
        with torch.autocast(z_PME.device.type, enabled=False):
            return z_PME @ other_PME.mT

    def self_similarity(self, representation_BD: Tensor) -> tuple[Tensor, Tensor]:
        """By quadrature: two samples have the cosine w₁w₂ + √(1−w₁²)√(1−w₂²)c; w theirs to μ, c of their turns."""
        kappa_B, d = self.posterior.concentration(representation_BD).double(), self.posterior.dimension
        along_BM, weight_BM = cosine_quadrature(kappa_B, d, 16)
        turn_T, turn_weight_T = cosine_quadrature(torch.zeros_like(kappa_B[0]), d - 1, 12)
        across_BM = (1 - along_BM.square()).sqrt()
        products_BMM, sines_BMM, weight_BMM = (
            value_BM[:, :, None] * value_BM[:, None] for value_BM in (along_BM, across_BM, weight_BM)
        )
        similarity_BMMT = products_BMM[..., None] + sines_BMM[..., None] * turn_T
        return similarity_BMMT.flatten(1).float(), (weight_BMM[..., None] * turn_weight_T).flatten(1).float()

    def spread(self, representation_BD: Tensor) -> dict[str, Tensor]:
        """1/κ."""
        return {"inverse_concentration": self.posterior.concentration(representation_BD).reciprocal()}

    def embedding(self, representation_BD: Tensor) -> Tensor:
        """As the posterior says."""
        return self.posterior.embedding(representation_BD)

    def sample(self, representation_BD: Tensor, samples: int, generator: torch.Generator) -> Tensor:
        """Unit vectors."""
        return self.posterior(representation_BD).sample((samples,), generator)


def log_match(log_odds_PQ: Tensor, weight_PQ: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """log p and log(1 − p), (P,), of the match probability p = Σ w σ(log odds) (Eq. 5); by default w = 1/Q."""
    log_weight = torch.full_like(log_odds_PQ, -math.log(log_odds_PQ.shape[1])) if weight_PQ is None else weight_PQ.log()
    return (
        torch.logsumexp(log_weight + logsigmoid(log_odds_PQ), dim=1),
        torch.logsumexp(log_weight + logsigmoid(-log_odds_PQ), dim=1),
    )


def match_loss(
    log_odds_PQ: Tensor, match_P: Tensor, *, repulsion: str = "mismatch", match_share: float = 0.5
) -> Tensor:
    """Mean over pairs that match and mean over those that do not, weighted; 0 for kinds without a pair.

    Args:
        log_odds_PQ: of a match, for Q pairs of samples of each of P pairs.
        match_P: bool.
        repulsion: of pairs that do not match, as in ``hib``.
        match_share: weight of the first mean, in [0, 1]; the second has the rest.
    """
    if repulsion == "match":
        log_p_P, _ = log_match(log_odds_PQ)
        loss_P = torch.where(match_P, -log_p_P, log_p_P)
    else:  # 1 − σ(x) = σ(−x), so that of each pair only the one that counts is computed
        signed_PQ = torch.where(match_P[:, None], log_odds_PQ, -log_odds_PQ)
        loss_P = math.log(signed_PQ.shape[1]) - torch.logsumexp(logsigmoid(signed_PQ), dim=1)
    kinds = ((match_share, match_P.float()), (1 - match_share, 1 - match_P.float()))
    return sum(
        (share * (loss_P * kind_P).sum() / kind_P.sum().clamp_min(1) for share, kind_P in kinds), loss_P.new_zeros(())
    )
