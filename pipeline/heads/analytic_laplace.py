"""Last-layer Laplace: how far the frozen classifier's logits could have come out otherwise, in closed form.

*Laplace redux* (Daxberger et al., NeurIPS 2021): the classifier's weights get the Gaussian posterior whose precision is
the Gauss–Newton matrix of the cross-entropy over the store's rows plus a prior precision δ, and class probabilities are
softmax(m / √(1 + (π/8)·v)) of the logits' means m and variances v (MacKay 1992's probit approximation for each class).
Nothing is trained: the matrix is one exact pass (``finalise``). The score is the ``entropy`` of these probabilities in
nats, between 0 and log C; beside it ``variance``, the mean of v over classes, between 0 and (‖x‖² + 1)/δ.

The matrix is Σ_n (diag p − ppᵀ) ⊗ φφᵀ with φ = (x, 1); ``structure`` says what of it is kept:

- ``kronecker``: N times the mean of each factor (K-FAC), so C² numbers: up to 4,096 classes;
- ``kronecker_diagonal``: of the mean of diag p − ppᵀ the diagonal alone, for any number of classes;
- ``diagonal``: the diagonal of the whole, C·(D + 1) numbers.

δ maximises the evidence for the matrix found (MacKay's rule δ‖W‖² = Σ λ/(λ + δ)), or is given.

Deviations: none known; the labels do not enter, since the Gauss–Newton matrix of a softmax has none.

Cost: no training; a pass over the store; a score is two products with C·D numbers. Take it as the reference of all that
is learnt after the classifier.

Shape suffixes: B rows, V views, D width, F = D + 1, C classes, K eigenvalues of the classes' factor, N = B·V.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import partial
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from pipeline.config import config
from pipeline.errors import UserError
from pipeline.heads import _classes
from pipeline.heads._classes import LogPartition, pooled_entropies, require_classifier
from pipeline.heads.base import Head, HeadOutput, Needs, RepresentationBatch, Summary
from pipeline.tuning.space import Space, Span

MOST_CLASSES = 4096  # of structure=kronecker: its factors of the classes then take 256 MiB


@config
class Config:
    """The posterior."""

    structure: Literal["kronecker_diagonal", "kronecker", "diagonal"] = "kronecker_diagonal"  # see above
    prior_precision: Annotated[float, Field(gt=0)] | None = None  # δ; null: that of the greatest evidence


class AnalyticLaplace(Head):
    """Uncertainty = entropy of the class probabilities under the posterior of the frozen classifier's weights."""

    Config = Config
    keeps_representation = True
    weight_CD: Tensor
    bias_C: Tensor
    prior: Tensor
    curvature_CF: Tensor  # diagonal
    curvature_F: Tensor  # the others: eigenvalues and -vectors of Σ φφᵀ …
    basis_FF: Tensor
    curvature_K: Tensor  # … and of the mean of diag p − ppᵀ, or its diagonal
    basis_CK: Tensor

    @property
    def needs(self) -> Needs:
        """No training; the frozen classifier."""
        return Needs(training=False, classifier=True)

    @property
    def search(self) -> Space:
        """Priors instead of that of the greatest evidence."""
        return {"prior_precision": Span(low=1e-3, high=1e3)}

    def prepare(self, summary: Summary) -> None:
        """Keep the classifier; its posterior is the prior until ``finalise``.

        Raises:
            UserError: there is no classifier over this representation, or it has too many classes for the structure.
        """
        classifier = require_classifier("analytic_laplace", summary)
        classes, inputs = len(classifier.bias_C), summary.width + 1
        if self.config.structure == "kronecker" and classes > MOST_CLASSES:
            raise UserError(
                f"head.structure=kronecker: {classes:,} classes would need {classes**2 * 4 / 2**30:.0f} GiB. "
                "Set head.structure=kronecker_diagonal."
            )
        self.register_buffer("weight_CD", classifier.weight_CD.detach().float(), persistent=False)
        self.register_buffer("bias_C", classifier.bias_C.detach().float(), persistent=False)
        self.register_buffer("prior", torch.tensor(self.config.prior_precision or 1.0))
        if self.config.structure == "diagonal":
            self.register_buffer("curvature_CF", torch.zeros(classes, inputs))
            return
        self.register_buffer("curvature_F", torch.zeros(inputs))
        self.register_buffer("basis_FF", torch.eye(inputs))
        self.register_buffer("curvature_K", torch.zeros(classes))
        if self.config.structure == "kronecker":
            self.register_buffer("basis_CK", torch.eye(classes))

    @torch.no_grad()
    def finalise(self, batches: Iterable[RepresentationBatch]) -> None:
        """The Gauss–Newton matrix of all rows, in float64, and the prior precision."""
        classes, inputs = len(self.bias_C), self.weight_CD.shape[1] + 1
        structure, rows = self.config.structure, 0
        zeros = partial(torch.zeros, dtype=torch.float64, device=self.bias_C.device)
        left_FF, diagonal_C = zeros((inputs, inputs)), zeros((classes,))
        whole_CF = zeros((classes, inputs if structure == "diagonal" else 0))
        right_CC = zeros((classes if structure == "kronecker" else 0, classes))
        for batch in batches:
            phi_NF = with_one(batch.representation_BVD.flatten(0, 1))
            rows += len(phi_NF)
            log_partition_N1 = LogPartition.forward(phi_NF[:, :-1], self.weight_CD, self.bias_C)[:, None]
            left_FF += phi_NF.double().T @ phi_NF.double()
            for some in _slices(classes, len(phi_NF)):
                p_Nc = (phi_NF[:, :-1] @ self.weight_CD[some].T + self.bias_C[some] - log_partition_N1).exp()
                diagonal_C[some] += (p_Nc * (1 - p_Nc)).double().sum(0)
                if structure == "diagonal":
                    whole_CF[some] += (p_Nc * (1 - p_Nc)).double().T @ phi_NF.double().square()
            if structure == "kronecker":
                p_NC = (phi_NF[:, :-1] @ self.weight_CD.T + self.bias_C - log_partition_N1).exp().double()
                right_CC += p_NC.sum(0).diag() - p_NC.T @ p_NC
        self._keep(left_FF, diagonal_C / rows, right_CC / rows, whole_CF)

    def _keep(self, left_FF: Tensor, diagonal_C: Tensor, right_CC: Tensor, whole_CF: Tensor) -> None:
        if self.config.structure == "diagonal":
            self.curvature_CF.copy_(whole_CF)
            values = whole_CF
        else:
            values_F, basis_FF = torch.linalg.eigh(left_FF)
            values_K = diagonal_C
            if self.config.structure == "kronecker":
                values_K, basis_CK = torch.linalg.eigh(right_CC)
                self.basis_CK.copy_(basis_CK)
            for buffer, value in (
                (self.curvature_F, values_F.clamp_min(0)),
                (self.basis_FF, basis_FF),
                (self.curvature_K, values_K.clamp_min(0)),
            ):
                buffer.copy_(value)
            values = torch.outer(values_K.clamp_min(0), values_F.clamp_min(0))
        if self.config.prior_precision is None:
            squares = float(self.weight_CD.double().square().sum() + self.bias_C.double().square().sum())
            self.prior.fill_(evidence_precision(values, squares))

    def _variance(self, phi_BF: Tensor, some: slice) -> Tensor:
        """Of the logits of some classes, (B, c)."""
        if self.config.structure == "diagonal":
            return phi_BF.square() @ (1 / (self.curvature_CF[some] + self.prior)).T
        along_BF = (phi_BF @ self.basis_FF).square()
        if self.config.structure == "kronecker_diagonal":
            return along_BF @ (1 / (torch.outer(self.curvature_F, self.curvature_K[some]) + self.prior))
        share_BK = along_BF @ (1 / (torch.outer(self.curvature_F, self.curvature_K) + self.prior))
        return share_BK @ self.basis_CK[some].square().T

    def forward(self, representation_BD: Tensor) -> HeadOutput:
        """The representation untouched, and the two scores."""
        phi_BF = with_one(representation_BD)
        classes, rows = len(self.bias_C), len(phi_BF)

        def logits_of(some: slice) -> Tensor:
            mean_Bc = phi_BF[:, :-1] @ self.weight_CD[some].T + self.bias_C[some]
            return (mean_Bc * (1 + math.pi / 8 * self._variance(phi_BF, some)).rsqrt())[None]

        entropy_B, _ = pooled_entropies(logits_of, classes=classes, members=1, rows=rows)
        variance_B = torch.zeros_like(entropy_B)
        for some in _slices(classes, rows):
            variance_B = variance_B + self._variance(phi_BF, some).sum(-1) / classes
        return HeadOutput(
            embedding_BE=representation_BD,
            uncertainty={"entropy": entropy_B, "variance": variance_B},
            primary="entropy",
        )


def with_one(x_BD: Tensor) -> Tensor:
    """φ = (x, 1), float32."""
    return torch.cat([x_BD.float(), torch.ones_like(x_BD[:, :1], dtype=torch.float32)], dim=1)


def _slices(classes: int, rows: int) -> list[slice]:
    count = max(1, _classes.AT_ONCE // rows)
    return [slice(start, start + count) for start in range(0, classes, count)]


def evidence_precision(curvature: Tensor, squares: float) -> float:
    """The δ at which δ·‖W‖² = Σ λ/(λ + δ): the only stationary point, a maximum, of the evidence's logarithm.

    (P/2) log δ − (δ/2)‖W‖² − ½ Σ log(λ + δ) for a fixed matrix with eigenvalues λ; found by bisection.

    Args:
        curvature: λ ≥ 0, any shape.
        squares: ‖W‖² > 0.
    """
    low, high = -30.0, 30.0  # of log δ
    for _ in range(60):
        middle = (low + high) / 2
        delta = math.exp(middle)
        below = delta * squares < float((curvature / (curvature + delta)).sum())
        low, high = (middle, high) if below else (low, middle)
    return math.exp(low)
