"""Laplacian metric learning (LAM): the last layer's weights have a posterior; samples of it say where a row may lie.

Warburg et al., *Bayesian metric learning*, NeurIPS 2023. A network with a linear last layer and outputs of length 1 is
trained by the contrastive loss (Eq. 1); the precision of the last layer's weights is the loss's Hessian plus a prior
precision δ (Eq. 3). Samples of the weights embed a row at S points, to which a von Mises–Fisher distribution is fitted
by Eq. 42 and 43: κ = R̄(E − R̄²)/(1 − R̄²). The score is 1/κ > 0. Embeddings are those of the mean weights.

- ``posterior=post_hoc``: the Hessian is one pass after training (``finalise``); a row's positive is another of its
  class, its negatives the nearest of other classes, all of the batch.
- ``posterior=online``: Monte-Carlo EM. A step's gradient is at sampled weights (Eq. 4), and H ← (1 − α)H + α·N·h with
  the step's mean Hessian h at the same weights (Eq. 5; ``memory`` is α).

``hessian`` and ``distance`` choose one of six Gauss–Newton matrices (:mod:`pipeline.heads._contrastive`), ``structure``
its diagonal, as in the paper, or two Kronecker factors. Negative pairs weigh w, positive ones 1 − w (Eq. 10). What is
below 0 is taken for 0 (``full`` in the paper, Eq. 108; here whatever has such values).

Deviations: Eq. 5 has no factor N and has 1/α of a step's Hessian for its fixed point; with α·N it is that of post_hoc,
N times the mean over triplets (N: ``observations``). The prior is not forgotten with H₀ but added to H. δ is by
default that of the distribution which initial weights have. ``structure=kronecker`` is for ``hessian=fixed``, where
every term is a Kronecker product. The paper's memory factor of 1e-4 (App. G.1) wants tens of thousands of steps.

On Fashion-MNIST, with a backbone that learns (docs/results/lam_fashion_mnist.md), held-out images wanted δ = 1,000: ECE
.02, where the default, 27,648 there, is too sure: .10. The nearest negatives gave mAP@5 .69 where any gave .63.

Cost: the network; a step of online makes two more products of outputs and inputs of its last layer, a score S products
with that layer. Take it where what is far from the training rows is to be found, and embeddings may be learnt.

Shape suffixes: B rows, D width, E width of the embedding, F inputs of the last layer with its bias, S samples, G
groups, N negatives, P pairs.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import normalize

from pipeline.config import config
from pipeline.heads._contrastive import diagonal, factors, side
from pipeline.heads._mlp import mlp
from pipeline.heads._triplets import TripletConfig, split, triplet_needs
from pipeline.heads.base import Head, HeadOutput, LossOutput, Needs, RepresentationBatch, Summary, carried
from pipeline.tuning.space import Space, Span

Places = tuple[Tensor, Tensor, Tensor]
"""Of anchors (G, 1), positives (G, 1) and negatives (G, N) among the rows of a batch."""


@config
class Config(TripletConfig):
    """The network, its triplets, and the posterior."""

    margin: Annotated[float, Field(ge=0)] = 0.5  # m: squared distance beyond which a negative is far enough
    posterior: Literal["online", "post_hoc"] = "online"  # learnt with the weights, or from one pass afterwards
    hessian: Literal["fixed", "positive", "full"] = "fixed"  # which of its terms count; fixed: the paper's best
    distance: Literal["arccos", "euclidean"] = "arccos"  # which split of the loss; arccos: the paper's best
    structure: Literal["diagonal", "kronecker"] = "diagonal"  # what is kept of the Hessian
    negative_weight: Annotated[float, Field(ge=0, le=1)] = 0.5  # w of Eq. 10
    prior_precision: Annotated[float, Field(gt=0)] | None = None  # δ; null: 3 · inputs, as weights are drawn at first
    observations: Annotated[float, Field(gt=0)] | None = None  # N, times the mean Hessian of a triplet; null: rows
    memory: Annotated[float, Field(gt=0, le=1)] = 0.01  # α, of online
    training_samples: Annotated[int, Field(ge=1)] = 1  # weights that are drawn in a step of online
    samples: Annotated[int, Field(ge=2)] = 64  # S, of a score; the paper's ECE: 100

    def __post_init__(self) -> None:
        if self.structure == "kronecker" and self.hessian != "fixed":
            raise ValueError("structure=kronecker: only hessian=fixed is a sum of Kronecker products")


class LAM(Head):
    """Uncertainty = 1/κ of the vMF that is fitted to the embeddings of a row by sampled weights."""

    Config = Config
    noise_SEF: Tensor
    curvature_EF: Tensor  # diagonal
    left_EE: Tensor  # kronecker: Σ y·M, Σ y·φφᵀ and Σ y
    right_FF: Tensor
    total: Tensor

    @property
    def needs(self) -> Needs:
        """Triplets, with labels for the pass at the end."""
        return triplet_needs(self.config, labels=self.config.posterior == "post_hoc")

    @property
    def search(self) -> Space:
        """Margin, weight of the negatives, and how fast an online posterior follows."""
        found = {"margin": Span(low=0.1, high=1.0), "negative_weight": Span(low=0.1, high=1.0, log=False)}
        return {**found, **({"memory": Span(low=1e-3, high=0.1)} if self.config.posterior == "online" else {})}

    def prepare(self, summary: Summary) -> None:
        """Make the network and its posterior, which is the prior at first."""
        settings, generator = self.config, torch.Generator().manual_seed(self.seed)
        outputs, self.scale = settings.dimension, summary.scale or 1.0
        layers = list(mlp(summary.width, settings.projection_hidden, settings.projection_layers, outputs, generator))
        last = layers.pop()
        assert isinstance(last, nn.Linear)
        self.features, self.last, inputs = nn.Sequential(*layers), last, last.in_features + 1
        self.prior = settings.prior_precision or 3.0 * last.in_features
        self.observations = settings.observations or float(summary.rows)
        shapes: dict[str, tuple[int, ...]] = {"curvature_EF": (outputs, inputs)}
        if settings.structure == "kronecker":
            shapes = {"left_EE": (outputs, outputs), "right_FF": (inputs, inputs), "total": ()}
        for name, shape in shapes.items():
            if settings.posterior == "online":
                self.register_parameter(name, nn.Parameter(torch.zeros(shape)))
            else:
                self.register_buffer(name, torch.zeros(shape))
        self.statistics = tuple(shapes)
        if settings.posterior == "online":
            self.running = dict.fromkeys(shapes, 1 - settings.memory)
        noise_SEF = torch.randn(settings.samples, outputs, inputs, generator=generator)
        self.register_buffer("noise_SEF", noise_SEF, persistent=False)

    def _inputs(self, x_BD: Tensor) -> Tensor:
        """φ with a 1 for the bias, (B, F), float32."""
        phi_BF = self.features(x_BD.float() / self.scale).float()
        return torch.cat([phi_BF, torch.ones_like(phi_BF[:, :1])], dim=1)

    def _weight(self) -> Tensor:
        return torch.cat([self.last.weight, self.last.bias[:, None]], dim=1)

    @torch.no_grad()
    def _deviations(self, noise_SEF: Tensor) -> Tensor:
        """What sampled weights differ from their mean by, (S, E, F): covariance (H + δI)⁻¹."""
        if self.config.structure == "diagonal":
            return noise_SEF * (self.curvature_EF.clamp_min(0) + self.prior).rsqrt()
        (left_E, left_EE), (right_F, right_FF) = (torch.linalg.eigh(value) for value in (self.left_EE, self.right_FF))
        total = self.total.clamp_min(torch.finfo(torch.float32).tiny)
        curvature_EF = torch.outer(left_E.clamp_min(0) / total.sqrt(), right_F.clamp_min(0) / total.sqrt())
        curvature_EF = torch.where(self.total > 0, curvature_EF, 0.0)
        return left_EE @ (noise_SEF * (curvature_EF + self.prior).rsqrt()) @ right_FF.T

    def loss(self, batch: RepresentationBatch) -> LossOutput:
        """Eq. 1, the mean over triplets, and of online over sampled weights; what the Hessian gains is carried."""
        phi_BF = self._inputs(batch.representation_BVD[:, 0])
        return LossOutput(
            total=self._loss(phi_BF, split(torch.arange(len(phi_BF), device=phi_BF.device), self.config.negatives))
        )

    def loss_within(self, representation_BD: Tensor, label_B: Tensor) -> Tensor:
        """The same of rows that did not come in triplets, each of which is an anchor, as in ``finalise``."""
        phi_BF = self._inputs(representation_BD)
        return self._loss(phi_BF, self._places(phi_BF, label_B))

    @torch.no_grad()
    def _places(self, phi_BF: Tensor, label_B: Tensor) -> Places:
        e_BE = normalize(linear(phi_BF, self._weight()), dim=-1)
        return within(e_BE, label_B, self.config.negatives, self.config.mining)

    def _loss(self, phi_BF: Tensor, places: Places) -> Tensor:
        weight_EF = self._weight()
        if self.config.posterior == "post_hoc":
            return contrastive(normalize(linear(phi_BF, weight_EF), dim=-1), places, self.config.margin)
        count = self.config.training_samples
        noise_SEF = torch.randn((count, *weight_EF.shape), device=weight_EF.device)
        total = weight_EF.new_zeros(())
        gain = self.config.memory * self.observations / count
        for deviation_EF in self._deviations(noise_SEF):
            z_BE = linear(phi_BF, weight_EF + deviation_EF)
            total = total + contrastive(normalize(z_BE, dim=-1), places, self.config.margin) / count
            found = self._hessian(z_BE, phi_BF, *places)
            for name, value in zip(self.statistics, found, strict=True):
                total = total + carried(getattr(self, name), gain * value / len(places[0]))
        return total

    @torch.no_grad()
    def _hessian(
        self, z_BE: Tensor, phi_BF: Tensor, anchor_G1: Tensor, positive_G1: Tensor, negative_GN: Tensor
    ) -> tuple[Tensor, ...]:
        """Σ over groups of the mean Hessian of their pairs; rows are given by their places."""
        weight, spread = self.config.negative_weight, negative_GN.shape[1]
        one_P = torch.cat([anchor_G1[:, 0], anchor_G1.expand_as(negative_GN).flatten()])
        other_P = torch.cat([positive_G1[:, 0], negative_GN.flatten()])
        one, other = (side(z_BE[place_P], phi_BF[place_P]) for place_P in (one_P, other_P))
        inside_P = (one.e_PE - other.e_PE).square().sum(-1) < self.config.margin
        weight_P = -weight / spread * inside_P.float()
        weight_P[: len(anchor_G1)] = 1 - weight
        if self.config.structure == "kronecker":
            return factors(one, other, weight_P, distance=self.config.distance)
        return (diagonal(one, other, weight_P, distance=self.config.distance, hessian=self.config.hessian),)

    @torch.no_grad()
    def finalise(self, batches: Iterable[RepresentationBatch]) -> None:
        """Of post_hoc: N times the mean Hessian of the triplets of all batches, at the mean weights."""
        if self.config.posterior == "online":
            return
        sums, groups = [torch.zeros_like(getattr(self, name), dtype=torch.float64) for name in self.statistics], 0
        for batch in batches:
            assert batch.label_B is not None
            phi_BF = self._inputs(batch.representation_BVD[:, 0])
            places = self._places(phi_BF, batch.label_B)
            groups += len(places[0])
            for value, found in zip(sums, self._hessian(linear(phi_BF, self._weight()), phi_BF, *places), strict=True):
                value += found
        for name, value in zip(self.statistics, sums, strict=True):
            getattr(self, name).copy_(value * self.observations / max(groups, 1))

    def _embedded(self, representation_BD: Tensor, noise_SEF: Tensor) -> Tensor:
        weight_SEF = self._weight() + self._deviations(noise_SEF)
        z_BSE = self._inputs(representation_BD) @ weight_SEF.flatten(0, 1).T  # one product: S narrow ones are slow
        return normalize(z_BSE.unflatten(1, weight_SEF.shape[:2]).movedim(1, 0), dim=-1)

    def forward(self, representation_BD: Tensor) -> HeadOutput:
        """The embedding by the mean weights, and 1/κ."""
        inverse_B = inverse_concentration(self._embedded(representation_BD, self.noise_SEF))
        return HeadOutput(
            embedding_BE=normalize(linear(self._inputs(representation_BD), self._weight()), dim=-1),
            uncertainty={"inverse_concentration": inverse_B},
            primary="inverse_concentration",
        )

    @torch.no_grad()
    def sample(self, representation_BD: Tensor, num_samples: int, generator: torch.Generator) -> Tensor:
        """Embeddings by sampled weights."""
        shape = (num_samples, *self.noise_SEF.shape[1:])
        return self._embedded(representation_BD, torch.randn(shape, generator=generator, device=self.noise_SEF.device))


def inverse_concentration(e_SBE: Tensor) -> Tensor:
    """1/κ (B,) > 0 of the vMF fitted to samples of length 1 (Eq. 43); 1 − R̄² is their mean squared distance."""
    mean_BE = e_SBE.mean(0)
    length_B = torch.linalg.vector_norm(mean_BE, dim=-1).clamp_min(1e-6)
    spread_B = (e_SBE - mean_BE).square().sum(-1).mean(0)
    return spread_B / (length_B * (e_SBE.shape[-1] - length_B.square()))


def linear(phi_BF: Tensor, weight_EF: Tensor) -> Tensor:
    """z, (B, E), float32."""
    return (phi_BF @ weight_EF.T).float()


def contrastive(e_BE: Tensor, places: Places, margin: float) -> Tensor:
    """½‖a − p‖² + ½ mean_n max(0, m − ‖a − n‖²), the mean over groups (Eq. 1); rows are given by their places."""
    anchor, positive, negative = (e_BE[place] for place in places)
    pull = (anchor - positive).square().sum(-1).mean()
    push = (margin - (anchor - negative).square().sum(-1)).relu().mean()
    return (pull + push) / 2


def within(e_BE: Tensor, label_B: Tensor, negatives: int, mining: str) -> Places:
    """Places of anchors (G, 1), positives (G, 1) and negatives (G, N) among rows that did not come in triplets.

    An anchor's positive is the next row of its class, its negatives the nearest rows of other classes (``random``:
    any). Rows without a label, or alone of their class, are no anchors.
    """
    known_B = label_B >= 0
    same_BB = (label_B[:, None] == label_B) & known_B[:, None] & known_B
    rows = len(label_B)
    place_B = torch.arange(rows, device=label_B.device)
    ahead_BB = (place_B - place_B[:, None] - 1) % rows  # how many rows on; the row itself comes last
    positive_B = torch.where(same_BB, ahead_BB, rows).argmin(1)
    other_BB = ~same_BB & known_B[:, None] & known_B
    score_BB = torch.rand_like(other_BB, dtype=torch.float32) if mining == "random" else e_BE @ e_BE.T
    count = min(negatives, rows)
    best_BN = score_BB.masked_fill(~other_BB, -torch.inf).topk(count, dim=1).indices
    anchor_G = place_B[(positive_B != place_B) & known_B & (other_BB.sum(1) >= count)]
    return anchor_G[:, None], positive_B[anchor_G][:, None], best_BN[anchor_G]
