"""The angle of a von Mises–Fisher sample to its mean direction: its distribution, and how it moves with κ.

The angle θ = arccos μᵀx has the density g(θ) ∝ exp(κ cos θ) sin^{d−2} θ on [0, π], smooth for every d ≥ 2. Integrals
of it are taken by Gauss–Legendre quadrature over the part that matters: a few of its standard deviations.

Everything in float64. Between functions, a cosine w travels as t = 1 − w in (0, 2), because κt is what counts and w
rounds to 1 where κ is large.

Shape suffixes: n the nodes of a quadrature; everything else is elementwise over broadcast shapes.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from pipeline.distributions.bessel import bessel_ratio, blockwise, log_hyp0f1

Gradient = Literal["implicit", "pathwise"]

WIDTH = 8.0  # an integral's reach in standard deviations: exp(−8²/2) = 1e-14
LEAST, LARGEST = 1e-300, 2 - 4.5e-16  # of t: √(t(2−t)) > 0, so that its derivative is finite


def attach_gradient(t: Tensor, kappa: Tensor, d: int, gradient: Gradient) -> Tensor:
    """``t`` = 1 − μᵀx with a gradient in κ: how the point moves when κ changes.

    Args:
        t: float64 in (0, 2), the shape of ``kappa``; samples, or quantiles.
        kappa: float64.
        d: dimension.
        gradient: ``implicit`` holds the distribution function's value fixed (Figurnov, Mohamed and Mnih 2018, Eq. 5):
            dw/dκ = −(∂F/∂κ)/f, exact. ``pathwise`` differentiates Wood's proposal and forgets that its acceptance
            depends on κ too: dw/dκ = (1−w²)/√(4κ²+(d−1)²), as public code does; its bias vanishes with growing d
            (docs/design/09_distributions.md has numbers).
    """
    return _Moving.apply(t, kappa, d, gradient)


class _Moving(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(t: Tensor, kappa: Tensor, d: int, gradient: Gradient) -> Tensor:
        return t.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, int, Gradient], output: Tensor) -> None:
        _, kappa, ctx.d, ctx.gradient = inputs
        ctx.save_for_backward(output, kappa)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor, None, None]:
        t, kappa = ctx.saved_tensors
        if ctx.gradient == "pathwise":
            motion = t * (2 - t) / torch.sqrt(4 * kappa * kappa + (ctx.d - 1) ** 2)
        else:
            (motion,) = blockwise(lambda t, kappa: (_implicit_motion(t, kappa, ctx.d),), t, kappa)
        return None, -grad * motion, None, None


def _implicit_motion(t: Tensor, kappa: Tensor, d: int) -> Tensor:
    """dw/dκ = ∫_w^1 f(u)(u − A) du / f(w) = ∫_{−1}^w f(u)(A − u) du / f(w) > 0.

    Of the two the one is taken whose integrand has one sign, in the angle: sin θ ∫ g(φ)|cos φ − A| dφ / g(θ).
    """
    ratio = bessel_ratio(kappa, d)
    theta = angle(t)
    above = 1 - t >= ratio  # nearer to μ than the mean: integrate towards μ
    reach = WIDTH * _spread(kappa, ratio, d, above)
    end = torch.where(above, (theta - reach).clamp_min(0), (theta + reach).clamp_max(math.pi))
    phi_n, weight_n = _nodes(end, theta, 24)
    # g(φ)/g(θ), with cos φ − cos θ = 2 sin((θ−φ)/2) sin((θ+φ)/2)
    theta_1, kappa_1 = theta[..., None], kappa[..., None]
    rise_n = 2 * kappa_1 * torch.sin((theta_1 - phi_n) / 2) * torch.sin((theta_1 + phi_n) / 2)
    density_n = torch.exp(rise_n + (d - 2) * (_log_sin(phi_n) - _log_sin(theta_1)))
    distance_n = ((1 - ratio)[..., None] - 2 * torch.sin(phi_n / 2) ** 2).abs()
    return torch.sin(theta) * (weight_n * density_n * distance_n).sum(-1)


def angle(t: Tensor) -> Tensor:
    """θ from t = 1 − cos θ, exact for small t."""
    return 2 * torch.asin(torch.sqrt(t / 2))


def cumulative(theta: Tensor, kappa: Tensor, d: int) -> Tensor:
    """P(angle ≤ θ), float64; its absolute error is about 1e-12."""
    ratio = bessel_ratio(kappa, d)
    mean = torch.acos(ratio)
    low = (mean - 1.5 * WIDTH * _spread(kappa, ratio, d, torch.ones_like(ratio, dtype=torch.bool))).clamp_min(0)
    high = (mean + 1.5 * WIDTH * _spread(kappa, ratio, d, torch.zeros_like(ratio, dtype=torch.bool))).clamp_max(math.pi)
    phi_n, weight_n = _nodes(low, torch.minimum(torch.maximum(theta, low), high), 64)
    inside = (weight_n * torch.exp(log_density(phi_n, kappa[..., None], d))).sum(-1)
    return torch.where(theta >= high, torch.ones_like(inside), inside.clamp(0, 1))


def cosine_quadrature(kappa: Tensor, d: int, count: int) -> tuple[Tensor, Tensor]:
    """Nodes w and weights for expectations of a smooth f(μᵀx): E f ≈ Σ_n weight_n f(w_n), weights adding up to 1.

    Args:
        kappa: (…), float64.
        d: dimension; 1 is the two points ±1.
        count: of nodes; with 16 the variance of w is right to 0.2 %.

    Returns:
        w and weights, (…, count), float64.
    """
    if d == 1:
        end = torch.tensor([-1.0, 1.0], dtype=torch.float64, device=kappa.device)
        weight = torch.sigmoid(2 * kappa[..., None] * end)
        return end.expand_as(weight), weight
    ratio = bessel_ratio(kappa, d)
    mean, towards = torch.acos(ratio), torch.ones_like(ratio, dtype=torch.bool)
    low = (mean - 0.75 * WIDTH * _spread(kappa, ratio, d, towards)).clamp_min(0)
    high = (mean + 0.75 * WIDTH * _spread(kappa, ratio, d, ~towards)).clamp_max(math.pi)
    theta_n, weight_n = _nodes(low, high, count)
    weight_n = weight_n * torch.exp(log_density(theta_n, kappa[..., None], d))
    return torch.cos(theta_n), weight_n / weight_n.sum(-1, keepdim=True)


def log_density(theta: Tensor, kappa: Tensor, d: int) -> Tensor:
    """log g(θ): κ(cos θ) − L + (d−2) log sin θ + log(|S^{d−2}| / |S^{d−1}|)."""
    constant = math.lgamma(d / 2) - math.lgamma((d - 1) / 2) - math.log(math.pi) / 2
    bent = 2 * kappa * torch.sin(theta / 2) ** 2  # κ(1 − cos θ)
    return constant + (kappa - log_hyp0f1(kappa, d)) - bent + (d - 2) * _log_sin(theta)


def _log_sin(theta: Tensor) -> Tensor:
    return torch.log(torch.sin(theta).clamp_min(LEAST))


def _spread(kappa: Tensor, ratio: Tensor, d: int, above: Tensor) -> Tensor:
    """A standard deviation of θ or more: one over the root of the curvature of −log g, towards 0 or towards π."""
    sharp = (d - 2) / torch.where(above, (1 - ratio * ratio).clamp_min(LEAST), torch.ones_like(ratio))
    return torch.rsqrt((kappa * ratio + sharp).clamp_min(1e-6))


def _nodes(start: Tensor, end: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Points from ``start`` to ``end`` in a new last axis, and weights that are positive in either direction."""
    point, weight = _legendre(count)
    point_n = torch.tensor(point, dtype=torch.float64, device=start.device)
    weight_n = torch.tensor(weight, dtype=torch.float64, device=start.device)
    half = (end - start)[..., None] / 2
    return start[..., None] + half * (1 + point_n), half.abs() * weight_n


@cache
def _legendre(count: int) -> tuple[list[float], list[float]]:
    point, weight = np.polynomial.legendre.leggauss(count)
    return point.tolist(), weight.tolist()
