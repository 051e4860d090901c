"""Distances between two von Mises–Fisher distributions, in closed form, from their concentrations and one cosine.

EL-nivMF (Kirchhof et al. 2022; thesis App. A), supp. C to E. Arguments are two concentrations and the cosine of the
mean directions, so that a head can compare every row with every class: they broadcast, and nothing of size rows ×
classes × d is made. All are in nats; log C_d enters through differences of L = log ₀F₁ wherever its constant cancels.

Shape suffixes: none; everything is elementwise over broadcast shapes.
"""

from __future__ import annotations

import torch
from torch import Tensor

from pipeline.distributions.bessel import bessel_ratio, log_hyp0f1, log_normalizer_at_zero


def expected_likelihood(kappa_a: Tensor, kappa_b: Tensor, cosine: Tensor, d: int) -> Tensor:
    """d_EL = −log ∫ ρζ = log C(‖κ_aμ_a + κ_bμ_b‖) − log C(κ_a) − log C(κ_b) (Eq. 35); symmetric, any sign."""
    sum_norm = _norm_of_sum(kappa_a, kappa_b, cosine)
    value = log_hyp0f1(kappa_a, d) + log_hyp0f1(kappa_b, d) - log_hyp0f1(sum_norm, d)
    return _as(value - log_normalizer_at_zero(d), kappa_a, kappa_b, cosine)


def bhattacharyya(kappa_a: Tensor, kappa_b: Tensor, cosine: Tensor, d: int) -> Tensor:
    """d_B = −log ∫ √(ρζ) = log C(‖κ_aμ_a + κ_bμ_b‖/2) − log C(κ_a)/2 − log C(κ_b)/2 (Eq. 29); symmetric, ≥ 0."""
    sum_norm = _norm_of_sum(kappa_a, kappa_b, cosine)
    value = (log_hyp0f1(kappa_a, d) + log_hyp0f1(kappa_b, d)) / 2 - log_hyp0f1(sum_norm / 2, d)
    return _as(value, kappa_a, kappa_b, cosine)


def kullback_leibler(kappa_a: Tensor, kappa_b: Tensor, cosine: Tensor, d: int) -> Tensor:
    """KL(a‖b) = log C(κ_a) − log C(κ_b) + A_d(κ_a)(κ_a − κ_b·cosine), ≥ 0.

    Eq. 39 writes μ_a for the mean A_d(κ_a)μ_a of a; its value is too large.
    """
    a, b = kappa_a.double(), kappa_b.double()
    value = log_hyp0f1(b, d) - log_hyp0f1(a, d) + bessel_ratio(a, d) * (a - b * cosine.double())
    return _as(value, kappa_a, kappa_b, cosine)


def _norm_of_sum(kappa_a: Tensor, kappa_b: Tensor, cosine: Tensor) -> Tensor:
    """‖κ_aμ_a + κ_bμ_b‖; at 0 its gradient is finite, because 1e-15 stands in."""
    a, b = kappa_a.double(), kappa_b.double()
    squared = (a - b).square() + 2 * a * b * (1 + cosine.double()).clamp_min(0)
    return torch.sqrt(squared + 1e-30)


def _as(value: Tensor, *inputs: Tensor) -> Tensor:
    """In the inputs' dtype, float32 at least."""
    dtype = torch.float32
    for tensor in inputs:
        dtype = torch.promote_types(dtype, tensor.dtype)
    return value.to(dtype)
