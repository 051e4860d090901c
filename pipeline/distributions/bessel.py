"""log ₀F₁ and the Bessel ratio A_d, which make up the von Mises–Fisher distribution, for d ≥ 2 and any κ ≥ 0.

One formula without branches, in float64: Debye's uniform expansion at an order N ≥ 16 (DLMF 10.41), then the
recurrence of the ratios down to ν = d/2 − 1. With z = κ/N, s = √(1+z²), p = 1/s and the polynomials of
:mod:`pipeline.distributions.debye`:

- L_N = N[(s−1) − log1p((s−1)/2)] − ½ log s + log P(p) − log P(1);
- R_N = z/(1+s) − z/(1+z²) · S(p)/P(p);
- down, for μ = ν+n, …, ν+1: t = κR/(2μ); L += log1p(t); R ← (κ/2μ)/(1+t).

The last L is log ₀F₁(; d/2; κ²/4), the last R is A_d(κ) = I_{d/2}(κ)/I_{d/2−1}(κ). A_d′ is the derivative of the same
steps term by term; the closed form 1 − A² − (d−1)A/κ would lose all digits for κ ≫ d.

Gradients are by hand: L′ = A, A′ as above, A″ = −2AA′ − (d−1)(A/κ)′. Every function takes κ of any shape and float
dtype, computes in float64 and returns float64. They work under autocast, ``torch.compile`` and ``torch.func.vmap``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from pipeline.distributions.debye import Debye, debye

BLOCK = 1 << 15  # elements that are computed together on a CPU


def log_hyp0f1(kappa: Tensor, d: int) -> Tensor:
    """L = log ₀F₁(; d/2; κ²/4) = log C_d(0) − log C_d(κ); 0 at κ = 0, about κ for κ ≫ d."""
    return _LogHyp0F1.apply(kappa.double(), d)


def bessel_ratio(kappa: Tensor, d: int) -> Tensor:
    """A_d(κ) = I_{d/2}(κ) / I_{d/2−1}(κ), in [0, 1): the mean of μᵀx under the vMF distribution."""
    return _Ratio.apply(kappa.double(), d)


def bessel_ratio_derivative(kappa: Tensor, d: int) -> Tensor:
    """A_d′(κ), in (0, 1/d]: the variance of μᵀx."""
    return _RatioDerivative.apply(kappa.double(), d)


def log_normalizer(kappa: Tensor, d: int) -> Tensor:
    """log C_d(κ), the logarithm of the density's constant: C_d(κ)·exp(κμᵀx) integrates to 1 on S^{d−1}."""
    return log_normalizer_at_zero(d) - log_hyp0f1(kappa, d)


def log_normalizer_at_zero(d: int) -> float:
    """log C_d(0) = −log of the area of S^{d−1} = lgamma(d/2) − log 2 − (d/2) log π."""
    return math.lgamma(d / 2) - math.log(2) - d / 2 * math.log(math.pi)


class _Elementwise(torch.autograd.Function):
    """What the three functions below share: κ is kept, and the gradient in d is none."""

    generate_vmap_rule = True

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, int], output: Tensor) -> None:
        kappa, ctx.d = inputs
        ctx.save_for_backward(kappa)


class _LogHyp0F1(_Elementwise):
    @staticmethod
    def forward(kappa: Tensor, d: int) -> Tensor:
        constants = debye(d)
        return blockwise(lambda part: (_log_hyp0f1(part, constants),), kappa)[0]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (kappa,) = ctx.saved_tensors
        return gradient * bessel_ratio(kappa, ctx.d), None


class _Ratio(_Elementwise):
    @staticmethod
    def forward(kappa: Tensor, d: int) -> Tensor:
        constants = debye(d)
        return blockwise(lambda part: (_ratio(part, constants),), kappa)[0]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (kappa,) = ctx.saved_tensors
        return gradient * bessel_ratio_derivative(kappa, ctx.d), None


class _RatioDerivative(_Elementwise):
    @staticmethod
    def forward(kappa: Tensor, d: int) -> Tensor:
        constants = debye(d)
        return blockwise(lambda part: (_ratio_derivative(part, constants),), kappa)[0]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (kappa,) = ctx.saved_tensors
        return gradient * _second_derivative(kappa, ctx.d), None


def blockwise(formula: Callable[..., tuple[Tensor, ...]], *tensors: Tensor) -> tuple[Tensor, ...]:
    """An elementwise formula of tensors of one shape, on a CPU in blocks that stay in its cache: ten times as fast.

    Blocks are cut along the first axis. Neither on a GPU nor while compiling, where each operation is one pass anyway.
    """
    first = tensors[0]
    if first.device.type != "cpu" or first.numel() <= BLOCK or torch.compiler.is_compiling():
        return formula(*tensors)
    rows = max(1, BLOCK * len(first) // first.numel())
    found = [formula(*parts) for parts in zip(*(tensor.split(rows) for tensor in tensors), strict=True)]
    return tuple(torch.cat(parts) for parts in zip(*found, strict=True))


def _log_hyp0f1(kappa: Tensor, constants: Debye) -> Tensor:
    z = kappa / constants.order
    s = torch.sqrt(1 + z * z)
    rise = z * z / (1 + s)  # s − 1
    # log P(p) − log P(1), exact for small κ too
    series = torch.log1p(-rise / s * _horner(constants.quotient, 1 / s) / constants.at_one)
    value = constants.order * (rise - torch.log1p(rise / 2)) - torch.log1p(rise) / 2 + series
    if constants.recurrence:
        ratio = _start(z, s, constants)
    for mu in constants.recurrence:
        t = kappa * ratio / (2 * mu)
        value = value + torch.log1p(t)
        ratio = kappa / (2 * mu) / (1 + t)
    return value


def _ratio(kappa: Tensor, constants: Debye) -> Tensor:
    z = kappa / constants.order
    ratio = _start(z, torch.sqrt(1 + z * z), constants)
    for mu in constants.recurrence:
        ratio = kappa / (2 * mu + kappa * ratio)
    return ratio


def _ratio_derivative(kappa: Tensor, constants: Debye) -> Tensor:
    z = kappa / constants.order
    s = torch.sqrt(1 + z * z)
    ratio, slope = _start(z, s, constants), _start_derivative(z, s, constants) / constants.order
    for mu in constants.recurrence:
        below = 2 * mu + kappa * ratio
        slope = (2 * mu - kappa * kappa * slope) / (below * below)
        ratio = kappa / below
    return slope


def _start(z: Tensor, s: Tensor, constants: Debye) -> Tensor:
    """R_N."""
    p = 1 / s
    return z / (1 + s) - z * p * p * _horner(constants.slope, p) / _horner(constants.series, p)


def _start_derivative(z: Tensor, s: Tensor, constants: Debye) -> Tensor:
    """dR_N/dz, from d(z/(1+s))/dz = 1/(s(1+s)), d(z/(1+z²))/dz = (1−z²)/(1+z²)² and dp/dz = −zp³."""
    p = 1 / s
    series, slope = _horner(constants.series, p), _horner(constants.slope, p)
    quotient = slope / series
    quotient_slope = (
        _horner(constants.slope_derivative, p) - quotient * _horner(constants.series_derivative, p)
    ) / series
    z_p = z * p  # below 1, so that no square overflows
    return p / (1 + s) - (p * p - z_p * z_p) * p * p * quotient + z_p * z_p * p**3 * quotient_slope


def _second_derivative(kappa: Tensor, d: int) -> Tensor:
    """A″; for κ² ≪ d the difference of two large terms is replaced by the series of A around 0."""
    small = kappa * kappa < 1e-4 * d
    away = torch.where(small, torch.ones_like(kappa), kappa)
    ratio, slope = bessel_ratio(away, d), bessel_ratio_derivative(away, d)
    far = -2 * ratio * slope - (d - 1) * (slope - ratio / away) / away
    near = kappa / (d * d * (d + 2)) * (40 * kappa * kappa / (d * (d + 4)) - 6)
    return torch.where(small, near, far)


def _horner(coefficients: tuple[float, ...], p: Tensor) -> Tensor:
    value = torch.full_like(p, coefficients[-1])
    for coefficient in coefficients[-2::-1]:
        value.mul_(p).add_(coefficient)  # in place: this is most of the work
    return value
