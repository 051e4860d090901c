"""Distances between two von Mises–Fisher distributions, in closed form, from their concentrations and one cosine.

EL-nivMF (Kirchhof et al. 2022; thesis App. A), supp. C to E. Arguments are two concentrations and the cosine of the
mean directions, so that a head can compare every row with every class: they broadcast, and nothing of size rows ×
classes × d is made. All are in nats; log C_d enters through differences of L = log ₀F₁ wherever its constant cancels.

Shape suffixes: none; everything is elementwise over broadcast shapes.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from pipeline.distributions.bessel import bessel_ratio, blockwise, log_hyp0f1, log_normalizer_at_zero


def expected_likelihood(kappa_a: Tensor, kappa_b: Tensor, cosine: Tensor, d: int) -> Tensor:
    """d_EL = −log ∫ ρζ = log C(‖κ_aμ_a + κ_bμ_b‖) − log C(κ_a) − log C(κ_b) (Eq. 35); symmetric, any sign."""
    alone = log_hyp0f1(kappa_a, d) + (log_hyp0f1(kappa_b, d) - log_normalizer_at_zero(d))
    return _as(alone - _log_hyp0f1_of_sum(kappa_a, kappa_b, cosine, d), kappa_a, kappa_b, cosine)


def bhattacharyya(kappa_a: Tensor, kappa_b: Tensor, cosine: Tensor, d: int) -> Tensor:
    """d_B = −log ∫ √(ρζ) = log C(‖κ_aμ_a + κ_bμ_b‖/2) − log C(κ_a)/2 − log C(κ_b)/2 (Eq. 29); symmetric, ≥ 0."""
    alone = (log_hyp0f1(kappa_a, d) + log_hyp0f1(kappa_b, d)) / 2
    return _as(alone - _log_hyp0f1_of_sum(kappa_a / 2, kappa_b / 2, cosine, d), kappa_a, kappa_b, cosine)


def kullback_leibler(kappa_a: Tensor, kappa_b: Tensor, cosine: Tensor, d: int) -> Tensor:
    """KL(a‖b) = log C(κ_a) − log C(κ_b) + A_d(κ_a)(κ_a − κ_b·cosine), ≥ 0.

    Eq. 39 writes μ_a for the mean A_d(κ_a)μ_a of a; its value is too large.
    """
    a, b = kappa_a.double(), kappa_b.double()
    value = log_hyp0f1(b, d) - log_hyp0f1(a, d) + bessel_ratio(a, d) * (a - b * cosine.double())
    return _as(value, kappa_a, kappa_b, cosine)


def _log_hyp0f1_of_sum(kappa_a: Tensor, kappa_b: Tensor, cosine: Tensor, d: int) -> Tensor:
    """L(‖κ_aμ_a + κ_bμ_b‖), float64. Beside its inputs it keeps nothing for the gradient, and works in blocks."""
    return _LogHyp0F1OfSum.apply(*torch.broadcast_tensors(kappa_a, kappa_b, cosine), d)


class _LogHyp0F1OfSum(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(kappa_a: Tensor, kappa_b: Tensor, cosine: Tensor, d: int) -> Tensor:
        return blockwise(lambda *parts: (log_hyp0f1(_norm_of_sum(*parts), d),), kappa_a, kappa_b, cosine)[0]

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor, int], output: Tensor) -> None:
        *tensors, ctx.d = inputs
        ctx.save_for_backward(*tensors)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        def slopes(a: Tensor, b: Tensor, c: Tensor, given: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            norm = _norm_of_sum(a, b, c)
            common = given * bessel_ratio(norm, ctx.d) / norm  # of half the squared norm
            by_a, by_b, by_c = common * (a + b * c), common * (b + a * c), common * a * b
            return by_a.to(a.dtype), by_b.to(b.dtype), by_c.to(c.dtype)

        return *blockwise(slopes, *ctx.saved_tensors, gradient), None


def _norm_of_sum(kappa_a: Tensor, kappa_b: Tensor, cosine: Tensor) -> Tensor:
    """‖κ_aμ_a + κ_bμ_b‖, float64; 1e-15 stands in for 0, so that A/‖·‖ is finite, and right, there too."""
    a, b = kappa_a.double(), kappa_b.double()
    squared = (a - b).square() + 2 * a * b * (1 + cosine.double()).clamp_min(0)
    return torch.sqrt(squared + 1e-30)


def _as(value: Tensor, *inputs: Tensor) -> Tensor:
    """In the inputs' dtype, float32 at least."""
    dtype = torch.float32
    for tensor in inputs:
        dtype = torch.promote_types(dtype, tensor.dtype)
    return value.to(dtype)
