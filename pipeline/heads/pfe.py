"""Probabilistic face embeddings: the mean is frozen, and a variance of each coordinate is learnt from pairs that match.

Shi and Jain, *Probabilistic face embeddings*, ICCV 2019: rows are N(μ, diag σ²), and the loss is minus the mean mutual
likelihood score of pairs of a class, −½ Σ_e [(μ_i − μ_j)²/(σ_i² + σ_j²) + log(σ_i² + σ_j²)] − (E/2) log 2π: the log
density that the two are the same point. μ = e/‖e‖. The score is ``variance``, the harmonic mean of σ² over coordinates
> 0. Reference of *Bayesian metric learning* (Warburg et al. 2023, Sec. 4 and App. G.4).

Deviations: the paper was not at hand, so this is as Warburg et al. describe it and as it is generally known. No batch
normalisation in the network of σ², which would make a row's score depend on others; two hidden layers, not one.
Groups hold ``rows_per_class`` rows of a class, of which all pairs are compared.

Cost: the network of σ², with D outputs. Take it where pairs of a class say which rows vary, and the embedding must not
change.

Shape suffixes: B rows, D width and width of the embedding, G groups, R rows of a group, P pairs of a group.
"""

from __future__ import annotations

import math
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import normalize

from pipeline.config import config
from pipeline.heads._positive import Positive, SpreadConfig
from pipeline.heads.base import Head, HeadOutput, LossOutput, Needs, RepresentationBatch, Summary
from pipeline.tuning.space import Space, Span


@config
class Config(SpreadConfig):
    """The network of the variances, and the pairs."""

    initial_variance: Annotated[float, Field(gt=0)] | None = None  # σ² at the start, about; null: 1/D
    rows_per_class: Annotated[int, Field(ge=2)] = 4  # of a group, all pairs of which are compared


class PFE(Head):
    """Uncertainty = harmonic mean of the variances; the embedding is the representation itself, bit for bit."""

    Config = Config
    keeps_representation = True

    @property
    def needs(self) -> Needs:
        """Groups of rows of a class."""
        rows = self.config.rows_per_class
        return Needs(sampling="class_balanced", rows_per_class=rows, together=rows)

    @property
    def search(self) -> Space:
        """The variance at the start."""
        return {"initial_variance": Span(low=1e-5, high=1e-1)}

    def prepare(self, summary: Summary) -> None:
        """Make the network."""
        settings, generator = self.config, torch.Generator().manual_seed(self.seed)
        initial = settings.initial_variance or 1 / summary.width
        self.variance = Positive(summary.width, settings, summary.width, generator, initial=initial)

    def loss(self, batch: RepresentationBatch) -> LossOutput:
        """−MLS, the mean over groups of that over their pairs."""
        x_BD, rows = batch.representation_BVD[:, 0], self.config.rows_per_class
        groups = len(x_BD) // rows * rows  # what is left over has no partner
        loc_GRD, variance_GRD = (
            value_BD[:groups].unflatten(0, (-1, rows))
            for value_BD in (normalize(x_BD.float(), dim=-1), self.variance(x_BD))
        )
        one_P, other_P = torch.triu_indices(rows, rows, 1, device=x_BD.device)
        score_GP = mutual_likelihood(
            loc_GRD[:, one_P], variance_GRD[:, one_P], loc_GRD[:, other_P], variance_GRD[:, other_P]
        )
        return LossOutput(total=-score_GP.mean(), parts={"variance": variance_GRD.mean().detach()})

    def forward(self, representation_BD: Tensor) -> HeadOutput:
        """The representation untouched, and the harmonic mean of its variances."""
        variance_B = self.variance(representation_BD).reciprocal().mean(-1).reciprocal()
        return HeadOutput(embedding_BE=representation_BD, uncertainty={"variance": variance_B}, primary="variance")

    @torch.no_grad()
    def sample(self, representation_BD: Tensor, num_samples: int, generator: torch.Generator) -> Tensor:
        """Of N(μ, diag σ²)."""
        loc_BD = normalize(representation_BD.float(), dim=-1)
        noise_SBD = torch.randn(num_samples, *loc_BD.shape, generator=generator, device=loc_BD.device)
        return loc_BD + self.variance(representation_BD).sqrt() * noise_SBD


def mutual_likelihood(loc: Tensor, variance: Tensor, other_loc: Tensor, other_variance: Tensor) -> Tensor:
    """log ∫ p_i(x) p_j(x) dx of Gaussians with diagonal covariances, (…), in nats, of values (…, E)."""
    total = variance + other_variance
    terms = (loc - other_loc).square() / total + total.log() + math.log(2 * math.pi)
    return -terms.sum(-1) / 2
