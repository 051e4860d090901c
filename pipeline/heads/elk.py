"""Expected likelihood kernel (ELK): distributions are compared, in closed form, instead of points.

*EL-nivMF* (Kirchhof et al. 2022; thesis ch. 2 and App. A): sim(ζ, ρ) = log ∫ ζρ of two von Mises–Fisher
distributions, supp. Eq. 35. The score is 1/κ > 0 of the posterior vMF(μ, κ) of a row; ``mean=frozen``: μ = e/‖e‖ and
only κ is learnt.

- ``objective=supervised``: softmax over classes, each a vMF that is learnt (URL, App. C, B.4 Eq. 3). A class c is a
  vector ν_c, of length about 1 at the start, with μ_c = ν_c/‖ν_c‖ and κ_c = t‖ν_c‖: the paper's duality of norm and
  concentration, and URL's "scaled up by t".
- ``objective=contrastive``: InfoNCE between the views of a batch with −d_EL for the cosine (MCInfoNCE, App. B Eq. 55).

Deviations: none known. Norms of ν_c are kept from 0 by the smallest κ of all heads.

Shape suffixes: B rows, V views, D width, E width of the embedding, C classes, N = B·V.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, normalize

from pipeline.config import config
from pipeline.distributions import VonMisesFisher, expected_likelihood
from pipeline.errors import UserError
from pipeline.heads._spherical import LARGEST, LEAST, Posterior, PosteriorConfig, contrast, cosines
from pipeline.heads.base import Head, HeadOutput, LossOutput, Needs, RepresentationBatch, Summary


@config
class Config(PosteriorConfig):
    """The posterior, and what it is compared with."""

    objective: Literal["supervised", "contrastive"] = "supervised"  # with learnt class distributions, or views
    class_concentration: Annotated[float, Field(gt=0)] = 32.0  # t of B.4, of supervised: κ_c at the start; 8 to 64
    inverse_temperature: Annotated[float, Field(gt=0)] = 1.0  # of contrastive: times −d_EL; κ_pos of Eq. 55


class ELK(Head):
    """Uncertainty = 1/κ of the posterior vMF(μ, κ)."""

    Config = Config

    def __init__(self, config: Any, *, seed: int = 0) -> None:
        super().__init__(config, seed=seed)
        self.keeps_representation = config.mean == "frozen"

    @property
    def needs(self) -> Needs:
        """Labels (supervised), or two views of each row, all of which are compared (contrastive)."""
        if self.config.objective == "supervised":
            return Needs(labels=True, together=1)
        return Needs(views=2)

    def prepare(self, summary: Summary) -> None:
        """Make the networks and the classes.

        Raises:
            UserError: supervised, and the store has no classes.
        """
        generator = torch.Generator().manual_seed(self.seed)
        self.posterior = Posterior(summary.width, self.config, generator)
        if self.config.objective == "contrastive":
            return
        if not summary.num_classes:
            raise UserError(
                "head elk: objective=supervised learns from labels, but the store knows no classes. "
                "Set head.objective=contrastive."
            )
        shape = (summary.num_classes, self.posterior.dimension)
        self.class_CE = nn.Parameter(torch.randn(shape, generator=generator) / math.sqrt(shape[1]))

    def loss(self, batch: RepresentationBatch) -> LossOutput:
        """Mean over rows and views; supervised: rows without a label count as 0."""
        posterior = self.posterior(batch.representation_BVD.flatten(0, 1))
        if self.config.objective == "supervised":
            assert batch.label_B is not None
            label_N = batch.label_B.repeat_interleave(batch.representation_BVD.shape[1])
            similarity_NC = self._similarity(posterior)
            total = cross_entropy(similarity_NC, label_N, ignore_index=-1, reduction="sum") / len(label_N)
        else:
            similarity_NN = -_distance(posterior, posterior.loc, posterior.concentration)
            total = -contrast(self.config.inverse_temperature * similarity_NN).mean()
        return LossOutput(total=total, parts={"concentration": posterior.concentration.mean().detach()})

    def _similarity(self, posterior: VonMisesFisher) -> Tensor:
        norm_C = torch.linalg.vector_norm(self.class_CE, dim=-1)
        kappa_C = (self.config.class_concentration * norm_C).clamp(LEAST, LARGEST)
        return -_distance(posterior, normalize(self.class_CE, dim=-1), kappa_C)

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


def _distance(posterior: VonMisesFisher, loc_XE: Tensor, kappa_X: Tensor) -> Tensor:
    """d_EL of each of N posteriors and X distributions, (N, X)."""
    cosine_NX = cosines(posterior.loc, loc_XE)
    return expected_likelihood(posterior.concentration[:, None], kappa_X, cosine_NX, posterior.dimension)
