"""From samples to κ, and from κ to the region that holds a share of the samples.

Shape suffixes: none; ``…`` is a batch shape, d the dimension, n the number of samples.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from pipeline.distributions.angle import angle, attach_gradient, cumulative, log_density
from pipeline.distributions.bessel import bessel_ratio, bessel_ratio_derivative

STEPS = 12  # of Newton: from Banerjee's start, 4 give all digits; the rest is for R̄ near 0 or 1
LONGEST = 1 - 1e-12  # of a mean: of samples that are all the same, κ would be infinite; this gives (d−1)/2 · 10¹²


def concentration_of_mean(resultant: Tensor, d: int) -> Tensor:
    """The κ at which A_d(κ) = R̄: the maximum-likelihood estimate from the length of the samples' mean.

    Newton's method on A_d (Sra 2012), started from R̄(d − R̄²)/(1 − R̄²) (Banerjee et al. 2005; Bayesian metric
    learning, Eq. 43, stops there: at d = 10 it is up to 6 % off).

    Args:
        resultant: R̄, (…), float in [0, 1]; above 1 − 1e-12 (all samples the same) that is taken.
        d: dimension.

    Returns:
        κ, (…), float64, with a gradient dκ/dR̄ = 1/A_d′(κ).
    """
    length = resultant.double().clamp_max(LONGEST)
    with torch.no_grad():
        kappa = length * (d - length * length) / (1 - length * length)
        for _ in range(STEPS):
            step = (bessel_ratio(kappa, d) - length) / bessel_ratio_derivative(kappa, d)
            kappa = (kappa - step).clamp_min(0)
        slope = bessel_ratio_derivative(kappa, d)
    return kappa + (length - length.detach()) / slope


def fit(samples: Tensor) -> tuple[Tensor, Tensor]:
    """Maximum-likelihood μ (…, d) and κ (…) of samples (n, …, d), unit vectors; float64.

    With few samples κ is overestimated: of n uniform samples the mean has a length of about 1/√n, not 0. Where the
    mean is exactly 0, μ is 0 too, and κ = 0.
    """
    mean = samples.double().mean(0)
    length = torch.linalg.vector_norm(mean, dim=-1)
    return mean / length.clamp_min(1e-300)[..., None], concentration_of_mean(length, samples.shape[-1])


def credible_cosine(kappa: Tensor, level: float | Tensor, d: int) -> Tensor:
    """The cosine c(κ, p) with P(μᵀx ≥ c) = p: {x : μᵀx ≥ c} is the smallest region that holds a share p.

    Thesis App. B, C.5, which prints ≤ for ≥. The highest-density region of κ = 0 is taken as the limit κ → 0.

    Args:
        kappa: (…), float.
        level: p in [0, 1].
        d: dimension.

    Returns:
        c in [−1, 1], (…), of kappa's dtype (float32 at least), with a gradient in κ. Where κ is large, float32 cannot
        tell c from 1; ask in float64 then.

    Raises:
        ValueError: a level (given as a number) outside [0, 1].
    """
    if not isinstance(level, Tensor) and not 0 <= level <= 1:
        raise ValueError(f"level: {level} is not between 0 and 1.")
    wide = kappa.double()
    share, wide = torch.broadcast_tensors(torch.as_tensor(level, dtype=torch.float64, device=kappa.device), wide)
    with torch.no_grad():
        theta = _quantile(share, wide, d)
    t = attach_gradient((2 * torch.sin(theta / 2) ** 2).clamp(1e-300, 2), wide, d, "implicit")
    return (1 - t).to(torch.promote_types(kappa.dtype, torch.float32))


def credible_cosine_share(kappa: Tensor, cosine: Tensor, d: int) -> Tensor:
    """P(μᵀx ≥ ``cosine``), float64: the share of samples so near to μ; the inverse of :func:`credible_cosine`."""
    t = (1 - cosine.double()).clamp(0, 2)
    theta, wide = torch.broadcast_tensors(angle(t), kappa.double())
    return cumulative(theta, wide, d)


def _quantile(share: Tensor, kappa: Tensor, d: int) -> Tensor:
    """The angle below which a share lies: Newton's method, and bisection where it leaves the bracket."""
    low, high = torch.zeros_like(kappa), torch.full_like(kappa, math.pi)
    theta = torch.acos(bessel_ratio(kappa, d))
    for _ in range(50):
        miss = cumulative(theta, kappa, d) - share
        low, high = torch.where(miss < 0, theta, low), torch.where(miss > 0, theta, high)
        newton = theta - miss * torch.exp(-log_density(theta, kappa, d))
        inside = (newton > low) & (newton < high)
        moved = torch.where(inside, newton, (low + high) / 2)
        theta, before = torch.where(miss == 0, theta, moved), theta
        if bool(((theta - before).abs() <= 1e-14 * theta).all()):
            break
    return torch.where(
        share <= 0, torch.zeros_like(theta), torch.where(share >= 1, torch.full_like(theta, math.pi), theta)
    )
