"""Samples of the von Mises–Fisher distribution on S^{d−1}.

The cosine with the mean direction by Wood's rejection (Wood 1994, algorithm VM*), in float64, with b written so that
nothing cancels: b = (d−1)/(2κ + √(4κ² + (d−1)²)). For d = 3 the distribution function is inverted instead. The rest
of the point is a normal vector without its part along μ, scaled: unlike a Householder reflection this has no special
case at μ = e₁.

Shape suffixes: N samples (flat), d the dimension of the space.
"""

from __future__ import annotations

import torch
from torch import Tensor

from pipeline.distributions.angle import LARGEST, LEAST

ROUNDS = 64  # acceptance is above 0.65 everywhere: a sample is left after so many with probability 1e-29


def draw_t(kappa: Tensor, d: int, generator: torch.Generator | None) -> Tensor:
    """1 − μᵀx for each κ ≥ 0, float64, in (0, 2), without a gradient; NaN where κ is not a finite number.

    How many numbers are drawn depends on what is accepted, so this neither compiles to one graph nor runs under
    ``vmap``.
    """
    kappa_N = kappa.detach().double().flatten()
    t_N = _inverted(kappa_N, generator) if d == 3 else _rejected(kappa_N, d, generator)
    return t_N.clamp(LEAST, LARGEST).view(kappa.shape)


def _rejected(kappa_N: Tensor, d: int, generator: torch.Generator | None) -> Tensor:
    t_N = torch.full_like(kappa_N, torch.nan)
    waiting = torch.arange(len(kappa_N), device=kappa_N.device)
    for _ in range(ROUNDS):
        proposed, accepted = propose(kappa_N[waiting], d, generator)
        t_N[waiting[accepted]] = proposed[accepted]
        waiting = waiting[~accepted]
        if len(waiting) == 0:
            break
    return t_N


def propose(kappa_N: Tensor, d: int, generator: torch.Generator | None) -> tuple[Tensor, Tensor]:
    """One proposal for each κ, and whether it is accepted.

    With Z of Beta((d−1)/2, (d−1)/2) and y = Z/(1 − (1−b)Z), Wood's proposal is t = 2by and its acceptance has the
    logarithm κ(2b/(1+b) − t) + (d−1)[log((1+b)/2) + log1p((1−b)y)].
    """
    uniform_3N = torch.rand(3, len(kappa_N), dtype=torch.float64, device=kappa_N.device, generator=generator)
    b_N = (d - 1) / (2 * kappa_N + torch.sqrt(4 * kappa_N * kappa_N + (d - 1) ** 2))
    beta_N = _symmetric_beta(uniform_3N[0], uniform_3N[1], d)
    y_N = beta_N / (1 - (1 - b_N) * beta_N)
    t_N = 2 * b_N * y_N
    log_acceptance_N = kappa_N * (2 * b_N / (1 + b_N) - t_N) + (d - 1) * (
        torch.log((1 + b_N) / 2) + torch.log1p((1 - b_N) * y_N)
    )
    return t_N, log_acceptance_N >= torch.log(uniform_3N[2])


def _symmetric_beta(radius_N: Tensor, turn_N: Tensor, d: int) -> Tensor:
    """Beta((d−1)/2, (d−1)/2) from two uniform numbers (Ulrich 1984).

    (1 + x₁)/2 for a coordinate x₁ of a point uniform on S^{d−1}: two coordinates of it have the squared radius
    1 − u^{2/(d−2)} and any direction.
    """
    cosine_N = torch.cos(2 * torch.pi * turn_N)
    if d > 2:
        cosine_N = cosine_N * torch.sqrt(-torch.expm1(torch.log(radius_N) * (2 / (d - 2))))
    return (1 + cosine_N) / 2


def _inverted(kappa_N: Tensor, generator: torch.Generator | None) -> Tensor:
    """For d = 3, where P(μᵀx ≤ w) = (e^{κw} − e^{−κ})/(e^κ − e^{−κ}): t = −log1p(u·expm1(−2κ))/κ."""
    uniform_N = torch.rand(len(kappa_N), dtype=torch.float64, device=kappa_N.device, generator=generator)
    kappa_N = kappa_N.clamp_min(LEAST)
    return -torch.log1p(uniform_N * torch.expm1(-2 * kappa_N)) / kappa_N


def around(loc: Tensor, t: Tensor, generator: torch.Generator | None) -> Tensor:
    """Points at the cosine 1 − ``t`` from ``loc``, in all directions alike.

    Args:
        loc: (…, d), unit length.
        t: (…), float64 in (0, 2).
        generator: of the directions.

    Returns:
        (…, d) of loc's dtype, with gradients in both.
    """
    shape = torch.broadcast_shapes(loc.shape[:-1], t.shape)
    noise = torch.randn((*shape, loc.shape[-1]), dtype=loc.dtype, device=loc.device, generator=generator)
    across = noise - (noise * loc).sum(-1, keepdim=True) * loc
    across = across / torch.linalg.vector_norm(across, dim=-1, keepdim=True).clamp_min(torch.finfo(loc.dtype).tiny)
    along, sine = (1 - t).to(loc.dtype), torch.sqrt(t * (2 - t)).to(loc.dtype)
    return along[..., None] * loc + sine[..., None] * across
