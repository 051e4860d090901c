"""SNGP: a Gaussian process over random features of the representation says how far a row is from what was trained on.

*Spectral-normalized neural Gaussian process* (Liu et al., NeurIPS 2020) in the form of *URL* (Kirchhof 2024, thesis
App. C, B.8, Eq. 7): logits φ(x)ᵀβ with variance φᵀ(I + ΦᵀΦ)⁻¹φ; φ = √(2/F)·cos(Wh(x) + b) with W, b frozen, h residual
layers h ← h + ReLU(W'h + b'), whose W' have a spectral norm of at most ``bound`` so that distances survive. Class
probabilities by the mean-field approximation, softmax(logits / √(1 + (π/8)·variance)). The score is their ``entropy``
in nats, between 0 and log C; beside it ``variance`` of the logits, between 0 and about 2/ridge.

β is trained by the cross-entropy of the plain logits (Liu et al., Alg. 1). The precision ridge·I + ΦᵀΦ is one exact
pass over all rows, in float64, after training (``finalise``); public code averages over steps and never resets it.

Deviations: the backbone is frozen; h works on x/scale of the store. The spectral norm of W' is by power iterations from
one fixed vector, so that a loss changes no state. The precision is one for all classes, without the weights p(1 − p) of
a Laplace approximation (URL's Eq. 7). The length scale of the kernel is in units of √D.

Cost: D² weights a layer, F·(D + F) constants, C·(F + 1) weights; a score is one pass through them. Take it for what
lies far from the training rows.

Shape suffixes: B rows, V views, D width, C classes, F features, N = B·V.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import layer_norm, linear, normalize

from pipeline.config import config
from pipeline.heads._classes import log_probability, pooled_entropies, require_classes
from pipeline.heads._mlp import linear as made_linear
from pipeline.heads.base import Head, HeadOutput, LossOutput, Needs, RepresentationBatch, Summary
from pipeline.tuning.space import Choice, Space, Span

ITERATIONS = 15  # of the power method; it comes from below, by about 1 % in 15 for random matrices


@config
class Config:
    """Layers before the random features, and the process over them."""

    layers: Annotated[int, Field(ge=0)] = 1  # residual layers
    spectral_norm: bool = True  # whether their weights are bounded; URL searches both
    bound: Annotated[float, Field(gt=0)] = 0.95  # of the spectral norm
    layer_norm: bool = False  # before the random features; URL searches both
    features: Annotated[int, Field(ge=1)] = 1024  # F
    length_scale: Annotated[float, Field(gt=0)] = 1.0  # of the kernel, in units of √D
    ridge: Annotated[float, Field(gt=0)] = 1.0  # precision before any row


class SNGP(Head):
    """Uncertainty = entropy of the mean-field class probabilities; the embedding is the representation itself."""

    Config = Config
    keeps_representation = True
    frequency_FD: Tensor
    phase_F: Tensor
    start_D: Tensor
    whitening_FF: Tensor

    @property
    def needs(self) -> Needs:
        """Labels."""
        return Needs(labels=True, together=1)

    @property
    def search(self) -> Space:
        """Both norms, as URL, App. B, and the kernel."""
        norms = {"spectral_norm": Choice((True, False)), "layer_norm": Choice((False, True))}
        return {"length_scale": Span(low=0.25, high=4.0), **norms}

    def prepare(self, summary: Summary) -> None:
        """Make the layers and β, and draw the random features; the variance is that of the prior until ``finalise``.

        Raises:
            UserError: the store has no classes.
        """
        classes, generator = require_classes("sngp", summary), torch.Generator().manual_seed(self.seed)
        width, features, self.scale = summary.width, self.config.features, summary.scale or 1.0
        self.layers = nn.ModuleList(made_linear(width, width, generator) for _ in range(self.config.layers))
        self.output = made_linear(features, classes, generator)
        spread = 1 / (self.config.length_scale * math.sqrt(width))
        self.register_buffer("frequency_FD", spread * torch.randn(features, width, generator=generator))
        self.register_buffer("phase_F", 2 * math.pi * torch.rand(features, generator=generator))
        self.register_buffer("start_D", normalize(torch.randn(width, generator=generator), dim=0))
        self.register_buffer("whitening_FF", torch.eye(features) / math.sqrt(self.config.ridge))

    def _features(self, x_ND: Tensor) -> Tensor:
        """φ, (N, F), float32."""
        h_ND = x_ND.float() / self.scale
        for layer in self.layers:
            assert isinstance(layer, nn.Linear)
            weight_DD = layer.weight
            if self.config.spectral_norm:
                weight_DD = bounded(weight_DD, self.start_D, self.config.bound)
            h_ND = h_ND + linear(h_ND, weight_DD, layer.bias).relu().float()
        if self.config.layer_norm:
            h_ND = layer_norm(h_ND, h_ND.shape[-1:])
        with torch.autocast(x_ND.device.type, enabled=False):  # a phase needs its digits
            phase_NF = linear(h_ND.float(), self.frequency_FD, self.phase_F)
        return math.sqrt(2 / self.config.features) * phase_NF.cos()

    def loss(self, batch: RepresentationBatch) -> LossOutput:
        """−log p(label), summed over labelled rows and views and divided by all."""
        assert batch.label_B is not None
        label_N = batch.label_B.repeat_interleave(batch.representation_BVD.shape[1])
        phi_NF = self._features(batch.representation_BVD.flatten(0, 1))
        return LossOutput(total=-log_probability(phi_NF, self.output.weight, self.output.bias, label_N).mean())

    @torch.no_grad()
    def finalise(self, batches: Iterable[RepresentationBatch]) -> None:
        """The exact precision ridge·I + Σ φφᵀ over all rows; kept is L⁻¹ of its Cholesky factor L."""
        identity_FF = torch.eye(self.config.features, dtype=torch.float64, device=self.phase_F.device)
        precision_FF = self.config.ridge * identity_FF
        for batch in batches:
            phi_NF = self._features(batch.representation_BVD.flatten(0, 1)).double()
            precision_FF += phi_NF.T @ phi_NF
        factor_FF = torch.linalg.cholesky(precision_FF)
        self.whitening_FF.copy_(torch.linalg.solve_triangular(factor_FF, identity_FF, upper=False))

    def forward(self, representation_BD: Tensor) -> HeadOutput:
        """The representation untouched, and the two scores."""
        phi_BF = self._features(representation_BD)
        variance_B = (phi_BF @ self.whitening_FF.T).square().sum(-1)
        narrowing_B1 = (1 + math.pi / 8 * variance_B).rsqrt()[:, None]

        def logits_of(some: slice) -> Tensor:
            return ((phi_BF @ self.output.weight[some].T + self.output.bias[some]) * narrowing_B1)[None]

        entropy_B, _ = pooled_entropies(logits_of, classes=len(self.output.bias), members=1, rows=len(phi_BF))
        return HeadOutput(
            embedding_BE=representation_BD,
            uncertainty={"entropy": entropy_B, "variance": variance_B},
            primary="entropy",
        )


def bounded(weight_DD: Tensor, start_D: Tensor, bound: float) -> Tensor:
    """The matrix, made smaller where its spectral norm is above ``bound``; the norm has its gradient."""
    with torch.no_grad():
        right_D = start_D
        for _ in range(ITERATIONS):
            left_D = normalize(weight_DD @ right_D, dim=0)
            right_D = normalize(weight_DD.T @ left_D, dim=0)
    norm = (left_D * (weight_DD @ right_D)).sum()
    return weight_DD * (bound / norm).clamp_max(1)
