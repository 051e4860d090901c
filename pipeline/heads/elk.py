"""Expected likelihood kernel (ELK): distributions are compared, in closed form, instead of points.

*EL-nivMF* (Kirchhof et al. 2022; thesis ch. 2 and App. A): sim(ζ, ρ) = log ∫ ζρ of two von Mises–Fisher
distributions, supp. Eq. 35. The score is 1/κ > 0 of the posterior vMF(μ, κ) of a row; ``mean=frozen``: μ = e/‖e‖ and
only κ is learnt.

Cost: a vector of E numbers a class; a step compares all rows with all classes (contrastive: with each other) in
float64. Take it where labels are at hand and κ is wanted without samples.

- ``objective=supervised``: softmax over classes, each a vMF that is learnt (URL, App. C, B.4 Eq. 3). A class c is a
  vector ν_c, of length about 1 at the start, with μ_c = ν_c/‖ν_c‖ and κ_c = t‖ν_c‖: the paper's duality of norm and
  concentration, and URL's "scaled up by t".
- ``objective=contrastive``: InfoNCE between views (or rows of a class: ``positives``) with −d_EL for the cosine
  (MCInfoNCE, App. B Eq. 55).

How strongly a cosine tells two distributions apart is κ_1·κ_2·A_d(r)/r, r the length of κ_1·μ_1 + κ_2·μ_2: never more
than either κ. URL's κ_c of 8 to 64 is a temperature for directions that are learnt. Frozen ones lie close to each
other and want a sharper comparison, so that with such a κ_c the loss falls for ever as κ grows, for all rows alike.
Here classes begin near to points (κ_c = 10·E), so that κ of a row is what limits, and has a best finite value.

Deviations: that. Norms of ν_c are kept from 0 by the smallest κ of all heads. ``reads``: see ``_spherical``.

Shape suffixes: B rows, V views, D width, E width of the embedding, C classes, N = B·V, P pairs, M negatives.
"""

from __future__ import annotations

import math
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, normalize

from pipeline.config import config
from pipeline.distributions import VonMisesFisher, expected_likelihood
from pipeline.errors import UserError
from pipeline.heads._pairs import PairsConfig, pair_needs, pairs_of
from pipeline.heads._spherical import LARGEST, LEAST, Posterior, PosteriorHead, contrast, contrast_with, cosines
from pipeline.heads.base import LossOutput, Needs, RepresentationBatch, Summary
from pipeline.tuning.space import Space, Span


@config
class Config(PairsConfig):
    """The posterior, and what it is compared with."""

    objective: Literal["supervised", "contrastive"] = "supervised"  # with learnt class distributions, or each other
    initial_concentration: Annotated[float, Field(gt=0, le=LARGEST)] | None = 64.0  # κ at the start, about; null: E
    class_concentration: Annotated[float, Field(gt=0)] | None = None  # t of B.4: κ_c at the start; null: 10·E
    inverse_temperature: Annotated[float, Field(gt=0)] = 1.0  # of contrastive: times −d_EL; κ_pos of Eq. 55


class ELK(PosteriorHead):
    """Uncertainty = 1/κ of the posterior vMF(μ, κ)."""

    Config = Config

    @property
    def needs(self) -> Needs:
        """Labels (supervised), or two views of each row, all of which are compared (contrastive)."""
        if self.config.objective == "supervised":
            return Needs(labels=True, together=1)
        return pair_needs(self.config, draws=False)

    @property
    def search(self) -> Space:
        """κ at the start, and how sharply it is compared; URL's t of 8 to 64 suits directions that are learnt."""
        if self.config.objective == "supervised":
            classes = Span(low=64.0, high=65536.0)
            return {"initial_concentration": Span(low=8.0, high=1024.0), "class_concentration": classes}
        temperatures = Span(low=0.25, high=4.0)
        return {"initial_concentration": Span(low=32.0, high=4096.0), "inverse_temperature": temperatures}

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
        if self.config.objective == "supervised":
            assert batch.label_B is not None
            posterior = self.posterior(batch.representation_BVD.flatten(0, 1))
            label_N = batch.label_B.repeat_interleave(batch.representation_BVD.shape[1])
            similarity_NC = self._similarity(posterior)
            total = cross_entropy(similarity_NC, label_N, ignore_index=-1, reduction="sum") / len(label_N)
        else:
            pairs = pairs_of(batch, self.config)
            posterior = self.posterior(pairs.x_ND)
            drawn = None if pairs.negative_PMD is None else self.posterior(pairs.negative_PMD)
            total = contrastive_loss(posterior, self.config, drawn, pairs.label_N)
        return LossOutput(total=total, parts={"concentration": posterior.concentration.mean().detach()})

    def _similarity(self, posterior: VonMisesFisher) -> Tensor:
        norm_C = torch.linalg.vector_norm(self.class_CE, dim=-1)
        at_start = self.config.class_concentration or 10.0 * posterior.dimension
        kappa_C = (at_start * norm_C).clamp(LEAST, LARGEST)
        return -_distance(posterior, normalize(self.class_CE, dim=-1), kappa_C)


def contrastive_loss(
    posterior: VonMisesFisher,
    config: Config,
    negatives: VonMisesFisher | None = None,
    label_N: Tensor | None = None,
) -> Tensor:
    """The contrastive loss, a mean over the 2P rows.

    Args:
        posterior: of 2P rows; (0, 1), (2, 3), … are alike.
        config: the temperature.
        negatives: (M,), of inputs drawn apart from the batch (MCInfoNCE, App. B Eq. 4), or (P, M), of each pair its
            own; None: all rows of other pairs.
        label_N: in the last case, rows of the same label are no negatives of each other.
    """
    t = config.inverse_temperature
    if negatives is None:
        return -contrast(-t * _distance(posterior, posterior.loc, posterior.concentration), label_N).mean()
    loc_P2E, kappa_P2 = posterior.loc.unflatten(0, (-1, 2)), posterior.concentration.unflatten(0, (-1, 2))
    cosine_P = (loc_P2E[:, 0] * loc_P2E[:, 1]).sum(-1)
    distance_P = expected_likelihood(kappa_P2[:, 0], kappa_P2[:, 1], cosine_P, posterior.dimension)
    cosine_P2M, kappa_M = cosines(loc_P2E, negatives.loc), negatives.concentration[..., None, :]
    distance_P2M = expected_likelihood(kappa_P2[..., None], kappa_M, cosine_P2M, posterior.dimension)
    return -contrast_with(-t * distance_P[:, None], -t * distance_P2M).mean()


def _distance(posterior: VonMisesFisher, loc_XE: Tensor, kappa_X: Tensor) -> Tensor:
    """d_EL of each of N posteriors and X distributions, (N, X)."""
    cosine_NX = cosines(posterior.loc, loc_XE)
    return expected_likelihood(posterior.concentration[:, None], kappa_X, cosine_NX, posterior.dimension)
