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

Deviations: pairs are made in the batch, of groups of two rows of a class: each row with the ``partners`` that follow
it, at the batch's end with those at its start, and pairs that match weigh as much together as those that do not, which
is Oh et al.'s balance of two streams. In Eq. 8 a pair has two divergences; here each row's counts once, so that β =
2e-4 is its 1e-4. ``repulsion=match`` is URL's Eq. 5, + log p for pairs that do not match, in place of −log(1 − p). URL
fixes a and b: ``learn_match=false``.

Cost: the networks; a step compares M² pairs of samples of each of 2B pairs of rows, a score as many of a row with
itself. Take it where labels say what belongs together, and low-dimensional embeddings may be learnt.

Shape suffixes: B rows, D width, E width of the embedding, K components, S samples of a row, P pairs.
"""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from pipeline.config import config
from pipeline.heads._hib import GaussianPosterior, MatchPosterior, VonMisesFisherPosterior, log_match, match_loss
from pipeline.heads._spherical import MeanHead, PosteriorConfig
from pipeline.heads.base import HeadOutput, LossOutput, Needs, RepresentationBatch, Summary
from pipeline.tuning.space import Space, Span


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
    partners: Annotated[int, Field(ge=1)] = 2  # rows behind each row of the batch that it is compared with
    slope: Annotated[float, Field(gt=0)] = 1.0  # a at the start; with vmf URL searches 8 to 64
    offset: float = 0.0  # b at the start; with vmf URL searches −8 to 8
    learn_match: bool = True  # whether a and b are learnt
    beta: Annotated[float, Field(ge=0)] = 1e-4  # weight of the KL divergence; URL: 0
    repulsion: Literal["mismatch", "match"] = "mismatch"  # of other pairs: −log(1 − p), or + log p

    def __post_init__(self) -> None:
        if self.posterior == "mixture" and self.mean == "frozen":
            raise ValueError("posterior=mixture has several means, so they must be learnt: set head.mean=projection")


class HIB(MeanHead):
    """Uncertainty = η, the probability that two samples of a row do not match (vmf: 1/κ)."""

    Config = Config

    @property
    def needs(self) -> Needs:
        """Groups of two rows of a class; rows of different groups are compared too."""
        return Needs(labels=True, sampling="class_balanced", rows_per_class=2)

    @property
    def search(self) -> Space:
        """URL, App. B (vmf); of Gaussians, the start and the weight of the prior."""
        if self.config.posterior == "vmf":
            concentrations = Span(low=64.0, high=4096.0)
            matches = {"slope": Span(low=8.0, high=64.0), "offset": Span(low=-8.0, high=8.0, log=False)}
            return {**matches, "initial_concentration": concentrations}
        return {"initial_scale": Span(low=0.01, high=1.0), "beta": Span(low=1e-6, high=1e-2)}

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
        parts = {"divergence": drawn.divergence_B.mean()}
        total = self.config.beta * parts["divergence"]
        shifts = range(1, min(self.config.partners + 1, len(batch.label_B)))
        if shifts:
            z_BME, label_B = drawn.z_BME, batch.label_B
            similarity_PMM = torch.cat([self.posterior.similarity(z_BME, z_BME.roll(-by, dims=0)) for by in shifts])
            match_P = torch.cat([label_B == label_B.roll(-by) for by in shifts])
            log_odds_PQ = self.log_odds(similarity_PMM).flatten(1)
            total = total + match_loss(log_odds_PQ, match_P, repulsion=self.config.repulsion)
        return LossOutput(total=total, parts={name: value.detach() for name, value in parts.items()})

    def log_odds(self, similarity: Tensor) -> Tensor:
        """Of a match of two samples with such a similarity (Eq. 2)."""
        return self.log_slope.exp() * similarity + self.offset

    def forward(self, representation_BD: Tensor) -> HeadOutput:
        """The representation (frozen) or the mean, η, and the variance or 1/κ."""
        similarity_BQ, weight_BQ = self.posterior.self_similarity(representation_BD)
        _, log_not_B = log_match(self.log_odds(similarity_BQ), weight_BQ)
        return HeadOutput(
            embedding_BE=self.posterior.embedding(representation_BD),
            uncertainty={"self_mismatch": log_not_B.exp(), **self.posterior.spread(representation_BD)},
            primary="inverse_concentration" if self.config.posterior == "vmf" else "self_mismatch",
        )

    def sample(self, representation_BD: Tensor, num_samples: int, generator: torch.Generator) -> Tensor:
        """Of p(z|x)."""
        return self.posterior.sample(representation_BD, num_samples, generator)
