"""Uncertainty momentum modelling (UMM): views are sets of samples of their distributions, and sets are compared.

Zhou et al., *Unsupervised embedding learning from uncertainty momentum modeling*, TPAMI. A view of a row is N(μ, diag
σ²), or a mixture of K (Eq. 2 and 3); k samples of each component, scaled to length 1, are its set. The loss is

- the set-to-set softmax (Eq. 5 to 7): −log of the share that a row's set has at the set of its other view, by the mean
  of all inner products of two sets, over a temperature;
- ``consistency`` times the symmetric KL divergence of a row's two views (Eq. 8 to 10);
- ``ranking`` times 1 − mAP (Eq. 11 and 12): each sample of a block of rows is a query, all samples of its row are right
  answers, and average precision is by a histogram of cosines with soft bins.

``candidates`` are the k of equal parts of training: many at first, when distributions are wide, fewer later (their
sampling-from-distribution schedule: 3, then 2). The score is ``variance`` > 0: the mean over coordinates of σ², with
the variance between components. ``mean=frozen``: μ = e/‖e‖, only σ² is learnt; a mixture needs ``mean=projection``.

Deviations: components of a mixture are compared one by one for the KL divergence, and their weights are 1/K. A row's
right answers are the samples of both of its views. The ranking is within blocks of ``ranking_rows`` rows, the size of
their batches. Losses are means, not sums. No momentum encoder: the backbone is frozen.

Cost: two networks of K·E outputs; the ranking compares (2·K·k·ranking_rows)² samples a block, ``bins`` times. Take it
where there are no labels, but several views of a row.

Shape suffixes: B rows, V = 2 views, D width, K components, E width of the embedding, M samples of a view, Q queries and
answers of a block, T bins.
"""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize
from torch.utils.checkpoint import checkpoint

from pipeline.config import config
from pipeline.heads._mlp import mlp
from pipeline.heads._positive import Positive, SpreadConfig
from pipeline.heads._spherical import MeanHead, ProjectionConfig, cosines
from pipeline.heads.base import HeadOutput, LossOutput, Needs, RepresentationBatch, Summary
from pipeline.tuning.space import Space, Span


@config
class Config(ProjectionConfig, SpreadConfig):
    """The posterior, its samples, and the weights of the three losses."""

    posterior: Literal["gaussian", "mixture"] = "gaussian"  # of a view
    components: Annotated[int, Field(ge=2)] = 2  # K of a mixture
    mean: Literal["frozen", "projection"] = "projection"  # frozen: μ = e/‖e‖, only σ² is learnt; projection: both
    initial_variance: Annotated[float, Field(gt=0)] | None = None  # σ² at the start, about; null: 1/E
    candidates: tuple[Annotated[int, Field(ge=1)], ...] = (3, 2)  # k in equal parts of training, one after the other
    temperature: Annotated[float, Field(gt=0)] = 0.07  # τ of the softmax; theirs on ImageNet
    consistency: Annotated[float, Field(ge=0)] = 0.2  # λ_N; theirs on ImageNet
    ranking: Annotated[float, Field(ge=0)] = 2.0  # λ_R; theirs on ImageNet
    ranking_rows: Annotated[int, Field(ge=2)] = 128  # rows of a block that is ranked; their batch on ImageNet
    bins: Annotated[int, Field(ge=2)] = 10  # of the histogram of cosines

    def __post_init__(self) -> None:
        if not self.candidates:
            raise ValueError("candidates: wants at least one number of samples")
        if self.posterior == "mixture" and self.mean == "frozen":
            raise ValueError("posterior=mixture has several means, so they must be learnt: set head.mean=projection")


class UMM(MeanHead):
    """Uncertainty = mean variance of a coordinate."""

    Config = Config

    @property
    def needs(self) -> Needs:
        """Two views of each row, all compared; how far training is, which says how many samples there are."""
        return Needs(views=2, progress=True)

    @property
    def search(self) -> Space:
        """The softmax, and the weights of the two other terms."""
        weights = {"consistency": Span(low=0.05, high=1.0), "ranking": Span(low=0.5, high=8.0)}
        return {"temperature": Span(low=0.03, high=0.3), **weights}

    def prepare(self, summary: Summary) -> None:
        """Make the networks."""
        settings, generator = self.config, torch.Generator().manual_seed(self.seed)
        frozen = settings.mean == "frozen"
        self.components = settings.components if settings.posterior == "mixture" else 1
        self.dimension = summary.width if frozen else settings.dimension
        outputs, shape = self.components * self.dimension, (settings.projection_hidden, settings.projection_layers)
        self.projection = None if frozen else mlp(summary.width, *shape, outputs, generator)
        initial = settings.initial_variance or 1 / self.dimension
        self.variance = Positive(summary.width, settings, outputs, generator, initial=initial)

    def _parameters_of(self, x_BD: Tensor) -> tuple[Tensor, Tensor]:
        """Means, of length 1, and variances, (B, K, E), float32."""
        loc = x_BD.float() if self.projection is None else self.projection(x_BD.float()).float()
        shape = (-1, self.components, self.dimension)
        return normalize(loc.view(shape), dim=-1), self.variance(x_BD).view(shape)

    def loss(self, batch: RepresentationBatch) -> LossOutput:
        """The softmax over rows, and the weighted consistency and ranking."""
        assert batch.progress_B is not None
        phases = self.config.candidates
        count = phases[min(int(float(batch.progress_B[0]) * len(phases)), len(phases) - 1)]
        sets, parameters = [], []
        for x_BD in batch.representation_BVD.unbind(1):
            loc_BKE, variance_BKE = self._parameters_of(x_BD)
            noise = torch.randn(count, *loc_BKE.shape, device=loc_BKE.device)
            z_BME = (loc_BKE + variance_BKE.sqrt() * noise).movedim(0, 1).flatten(1, 2)
            sets.append(normalize(z_BME, dim=-1))
            parameters.append((loc_BKE, variance_BKE))
        similarity_BB = cosines(sets[1].mean(1), sets[0].mean(1))  # the mean of products of two sets
        place_B = torch.arange(len(similarity_BB), device=similarity_BB.device)
        softmax = cross_entropy(similarity_BB / self.config.temperature, place_B)
        consistency = symmetric_divergence(*parameters[0], *parameters[1]).mean()
        total, parts = softmax + self.config.consistency * consistency, {"consistency": consistency.detach()}
        if self.config.ranking:
            ranking = self._ranking(torch.cat(sets, dim=1))
            total, parts["ranking"] = total + self.config.ranking * ranking, ranking.detach()
        return LossOutput(total=total, parts={"softmax": softmax.detach(), **parts})

    def _ranking(self, z_BME: Tensor) -> Tensor:
        """1 − mAP, the mean over samples; of several blocks what is between is made again for the gradient."""
        blocks, bins = z_BME.split(self.config.ranking_rows), self.config.bins
        if len(blocks) == 1:
            return ranking_loss(z_BME, bins)
        terms = [
            len(block) * checkpoint(ranking_loss, block, bins, use_reentrant=False, preserve_rng_state=False)
            for block in blocks
        ]
        total: Tensor = sum(terms[1:], start=terms[0])
        return total / len(z_BME)

    def forward(self, representation_BD: Tensor) -> HeadOutput:
        """The representation (frozen) or the mean of the components' means, and the variance."""
        loc_BKE, variance_BKE = self._parameters_of(representation_BD)
        variance_BE = variance_BKE.mean(1) + loc_BKE.var(1, correction=0)
        return HeadOutput(
            embedding_BE=representation_BD if self.projection is None else loc_BKE.mean(1),
            uncertainty={"variance": variance_BE.mean(-1)},
            primary="variance",
        )

    @torch.no_grad()
    def sample(self, representation_BD: Tensor, num_samples: int, generator: torch.Generator) -> Tensor:
        """Of the distribution, scaled to length 1."""
        loc_BKE, variance_BKE = self._parameters_of(representation_BD)
        shape, place = (num_samples, len(loc_BKE)), loc_BKE.device
        component_SB = torch.randint(self.components, shape, generator=generator, device=place)
        noise_SBE = torch.randn((*shape, self.dimension), generator=generator, device=place)
        row_B = torch.arange(len(loc_BKE), device=place)
        z_SBE = loc_BKE[row_B, component_SB] + variance_BKE[row_B, component_SB].sqrt() * noise_SBE
        return normalize(z_SBE, dim=-1)


def symmetric_divergence(loc: Tensor, variance: Tensor, other_loc: Tensor, other_variance: Tensor) -> Tensor:
    """KL(p ‖ q) + KL(q ‖ p) of diagonal Gaussians (…, E), in nats, (…): the logarithms cancel."""
    apart = (loc - other_loc).square()
    terms = (variance + apart) / other_variance + (other_variance + apart) / variance - 2
    return terms.sum(-1) / 2


def ranking_loss(z_BME: Tensor, bins: int) -> Tensor:
    """1 less the mean average precision of all samples as queries, the samples of their row being right answers."""
    z_QE = z_BME.flatten(0, 1)
    row_Q = torch.arange(len(z_BME), device=z_QE.device).repeat_interleave(z_BME.shape[1])
    return 1 - histogram_precision(cosines(z_QE, z_QE), row_Q[:, None] == row_Q, bins).mean()


def histogram_precision(cosine_QQ: Tensor, right_QQ: Tensor, bins: int) -> Tensor:
    """Average precision of each query (rows) by a histogram of cosines in [−1, 1], (Q,); the query answers itself.

    A cosine is shared between the two nearest of T + 1 knots. AP is (1/N⁺) Σ_t h⁺_t·H⁺_t/H_t over knots from the
    nearest answers on, where h are counts, H their sums so far and ⁺ those of right answers (Eq. 12). Where no two
    answers share a knot this is the exact average precision.
    """
    place_QQ = (1 - cosine_QQ.clamp(-1, 1)) * (bins / 2)
    right_QQ, precision_Q = right_QQ.to(cosine_QQ.dtype), torch.zeros_like(cosine_QQ[:, 0])
    seen_right_Q = torch.zeros_like(precision_Q)
    for knot in range(bins + 1):
        so_far_QQ = (knot + 1 - place_QQ).clamp(0, 1)  # what this knot and those before it have of each answer
        before_Q, seen_right_Q = seen_right_Q, (so_far_QQ * right_QQ).sum(-1)
        precision_Q = precision_Q + (seen_right_Q - before_Q) * seen_right_Q / so_far_QQ.sum(-1).clamp_min(1e-12)
    return precision_Q / right_QQ.sum(-1)
