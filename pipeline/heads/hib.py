"""Hedged instance embeddings (HIB): how likely do two rows match, given that each may be anywhere in its distribution?

Oh et al., *Modeling uncertainty with hedged instance embedding*, 2019. Samples z₁, z₂ match with probability σ(−a‖z₁
− z₂‖ + b) (Eq. 2), rows with its mean over all pairs of their samples (Eq. 4, 5); a and b are learnt. The loss is the
cross-entropy of match and label (Eq. 3) and β times KL(p(z|x) ‖ N(0, I)) (Eq. 8).

- ``posterior=gaussian``: diagonal; ``posterior=mixture``: of Gaussians, samples stratified over its components;
- ``posterior=vmf``: URL's form (Kirchhof 2024, App. C, B.6): vMF(μ, κ) and σ(a·z₁ᵀz₂ + b), KL to the uniform
  distribution.

The score is ``self_mismatch``: η = 1 − p(match | x, x) in [0, 1] (Eq. 9), by fixed noise for Gaussians and by
quadrature for vmf, so that a row has one whenever it is asked; ``variance``, the mean over dimensions, for Gaussians;
``inverse_concentration`` 1/κ for vmf, where it is primary as in URL. ``mean=frozen``: μ = e/‖e‖, and only the spread
is learnt; a mixture needs ``mean=projection``.

Deviations: pairs are made in the batch, of groups of two rows of a class: each row with the next and with the one
after, and pairs that match weigh as much together as those that do not, which is Oh et al.'s balance of two streams.
``repulsion=match`` is URL's Eq. 5, + log p for pairs that do not match, in place of −log(1 − p). URL fixes a and b:
``learn_match=false``.

Shape suffixes: B rows, D width, E width of the embedding, K components, S samples of a row, P pairs.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from pipeline.config import config
from pipeline.heads._hib import GaussianPosterior, MatchPosterior, VonMisesFisherPosterior, log_match
from pipeline.heads._spherical import PosteriorConfig
from pipeline.heads.base import Head, HeadOutput, LossOutput, Needs, RepresentationBatch, Summary


@config
class Config(PosteriorConfig):
    """The posterior, and how matches are learnt."""

    posterior: Literal["gaussian", "mixture", "vmf"] = "gaussian"  # p(z|x)
    mean: Literal["frozen", "projection"] = (
        "projection"  # frozen: μ = e/‖e‖, only the spread is learnt; projection: both
    )
    components: Annotated[int, Field(ge=2)] = 2  # of a mixture
    initial_scale: Annotated[float, Field(gt=0)] = 0.1  # of Gaussians: σ at the start, about
    samples: Annotated[int, Field(ge=1)] = 8  # of a row (of a mixture: of each component); Oh et al.: 8
    slope: Annotated[float, Field(gt=0)] = 1.0  # a at the start; with vmf URL searches 8 to 64
    offset: float = 0.0  # b at the start; with vmf URL searches −8 to 8
    learn_match: bool = True  # whether a and b are learnt
    beta: Annotated[float, Field(ge=0)] = 1e-4  # weight of the KL divergence; URL: 0
    repulsion: Literal["mismatch", "match"] = "mismatch"  # of other pairs: −log(1 − p), or + log p

    def __post_init__(self) -> None:
        if self.posterior == "mixture" and self.mean == "frozen":
            raise ValueError("posterior=mixture has several means, so they must be learnt: set head.mean=projection")


class HIB(Head):
    """Uncertainty = η, the probability that two samples of a row do not match (vmf: 1/κ)."""

    Config = Config

    def __init__(self, config: Any, *, seed: int = 0) -> None:
        super().__init__(config, seed=seed)
        self.keeps_representation = config.mean == "frozen"

    @property
    def needs(self) -> Needs:
        """Groups of two rows of a class; rows of different groups are compared too."""
        return Needs(labels=True, sampling="class_balanced", rows_per_class=2)

    def prepare(self, summary: Summary) -> None:
        """Make the networks, a and b."""
        generator = torch.Generator().manual_seed(self.seed)
        made = VonMisesFisherPosterior if self.config.posterior == "vmf" else GaussianPosterior
        self.posterior: MatchPosterior = made(summary.width, self.config, generator)
        log_slope, offset = torch.tensor(self.config.slope).log(), torch.tensor(self.config.offset)
        if self.config.learn_match:
            self.log_slope, self.offset = nn.Parameter(log_slope), nn.Parameter(offset)
        else:
            self.register_buffer("log_slope", log_slope)
            self.register_buffer("offset", offset)

    def loss(self, batch: RepresentationBatch) -> LossOutput:
        """Half the mean over pairs that match and half that over those that do not, plus β times the mean KL."""
        assert batch.label_B is not None
        drawn = self.posterior.draw(batch.representation_BVD[:, 0], self.config.samples)
        losses, matches = [], []
        for shift in range(1, min(3, len(batch.label_B))):
            similarity_PMM = self.posterior.similarity(drawn.z_BME, drawn.z_BME.roll(-shift, dims=0))
            log_p_P, log_not_P = log_match(self._log_odds(similarity_PMM).flatten(1))
            match_P = batch.label_B == batch.label_B.roll(-shift)
            losses.append(torch.where(match_P, -log_p_P, log_p_P if self.config.repulsion == "match" else -log_not_P))
            matches.append(match_P)
        parts = {"divergence": drawn.divergence_B.mean()}
        total = self.config.beta * parts["divergence"]
        if losses:
            loss_P, match_P = torch.cat(losses), torch.cat(matches).float()
            for weight_P in (match_P, 1 - match_P):
                total = total + (loss_P * weight_P).sum() / weight_P.sum().clamp_min(1) / 2
        return LossOutput(total=total, parts={name: value.detach() for name, value in parts.items()})

    def _log_odds(self, similarity: Tensor) -> Tensor:
        return self.log_slope.exp() * similarity + self.offset

    def forward(self, representation_BD: Tensor) -> HeadOutput:
        """The representation (frozen) or the mean, η, and the variance or 1/κ."""
        similarity_BQ, weight_BQ = self.posterior.self_similarity(representation_BD)
        _, log_not_B = log_match(self._log_odds(similarity_BQ), weight_BQ)
        return HeadOutput(
            embedding_BE=self.posterior.embedding(representation_BD),
            uncertainty={"self_mismatch": log_not_B.exp(), **self.posterior.spread(representation_BD)},
            primary="inverse_concentration" if self.config.posterior == "vmf" else "self_mismatch",
        )

    def sample(self, representation_BD: Tensor, num_samples: int, generator: torch.Generator) -> Tensor:
        """Of p(z|x)."""
        return self.posterior.sample(representation_BD, num_samples, generator)
