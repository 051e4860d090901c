"""Triplets of an anchor, a positive and several negatives: what the heads that learn from them share.

The moments of τ = ‖a − p‖² − ‖a − n‖² are those of *Bayesian triplet loss* (Warburg et al., ICCV 2021), Sec. 3.1. Its
Eq. 12 is printed with a wrong sign; below is the variance that agrees with Monte Carlo. That of von Mises–Fisher
posteriors is derived here: τ is 2aᵀ(n − p), and a, n, p are independent with known first and second moments.

Shape suffixes: B rows, G groups, N negatives, E width of the embedding; ``…`` is a batch shape.
"""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from pipeline.config import config
from pipeline.distributions import VonMisesFisher, bessel_ratio
from pipeline.heads._spherical import ProjectionConfig
from pipeline.heads.base import Needs


@config
class TripletConfig(ProjectionConfig):
    """The projection, and which triplets there are."""

    negatives: Annotated[int, Field(ge=1)] = 6  # of an anchor; Warburg et al.: 5, but groups of 8 divide a batch
    # of negatives: random, or the nearest in the representation or to the head
    mining: Literal["random", "representation", "head"] = "representation"
    pool: Annotated[int, Field(ge=1)] = 5000  # rows among which the nearest are looked for; Warburg et al.: 5,000
    margin: Annotated[float, Field(ge=0)] = 0.1  # m: how much nearer (in squared distance) a positive has to be


def triplet_needs(settings: TripletConfig, *, labels: bool = False) -> Needs:
    """Groups as the settings say, with the labels of their rows if asked for; the loss is a mean over groups."""
    return Needs(
        labels=labels,
        sampling="triplets",
        negatives=settings.negatives,
        mining=settings.mining,
        pool=settings.pool,
        together=2 + settings.negatives,
    )


def split(value_B: Tensor, negatives: int) -> tuple[Tensor, Tensor, Tensor]:
    """(B, …) → anchors (G, 1, …), positives (G, 1, …) and negatives (G, N, …)."""
    value_GB = value_B.unflatten(0, (-1, 2 + negatives))
    return value_GB[:, :1], value_GB[:, 1:2], value_GB[:, 2:]


def gap(loc_BE: Tensor, negatives: int) -> Tensor:
    """τ of points: ‖a − p‖² − ‖a − n‖², (G, N)."""
    anchor, positive, negative = split(loc_BE, negatives)
    return (anchor - positive).square().sum(-1) - (anchor - negative).square().sum(-1)


def gaussian_moments(loc_BE: Tensor, variance_B: Tensor, negatives: int) -> tuple[Tensor, Tensor]:
    """Mean and variance of τ for N(μ, σ²I), (G, N).

    Eq. 11, and in place of Eq. 12 the sum over dimensions of 2σ_p⁴ + 2σ_n⁴ + 4σ_p²((μ_p − μ_a)² + σ_a²)
    + 4σ_n²((μ_n − μ_a)² + σ_a²) + 4σ_a²(μ_p − μ_n)².
    """
    (a, p, n), width = split(loc_BE, negatives), loc_BE.shape[-1]
    va, vp, vn = split(variance_B, negatives)
    to_p, to_n, between = ((x - y).square().sum(-1) for x, y in ((p, a), (n, a), (p, n)))
    mean = to_p - to_n + width * (vp - vn)
    variance = 2 * width * (vp.square() + vn.square())
    variance = variance + 4 * (vp * (to_p + width * va) + vn * (to_n + width * va) + va * between)
    return mean, variance


def vmf_moments(posterior: VonMisesFisher, negatives: int) -> tuple[Tensor, Tensor]:
    """Mean and variance of τ for vMF(μ, κ), (G, N), float64.

    x has the mean Aμ and the covariance αI + βμμᵀ, α = A/κ and α + β = 1 − A² − (d − 1)α. With w = n − p, Var(aᵀw) is
    E[w]ᵀC_a E[w] + E[a]ᵀC_w E[a] + tr(C_a C_w), and C_w = C_n + C_p.
    """
    loc, kappa, d = posterior.loc.double(), posterior.concentration.double(), posterior.dimension
    ratio = bessel_ratio(kappa, d)
    alpha = ratio / kappa
    beta = 1 - ratio.square() - d * alpha
    (a, p, n), (ra, rp, rn) = split(loc, negatives), split(ratio, negatives)
    (alpha_a, alpha_p, alpha_n), (beta_a, beta_p, beta_n) = split(alpha, negatives), split(beta, negatives)
    along_p, along_n, between = ((x * y).sum(-1) for x, y in ((a, p), (a, n), (p, n)))
    towards = rn * along_n - rp * along_p  # E[w]·μ_a
    length = rn.square() + rp.square() - 2 * rn * rp * between  # ‖E[w]‖²
    variance = alpha_a * length + beta_a * towards.square()
    for alpha_x, beta_x, along in ((alpha_p, beta_p, along_p), (alpha_n, beta_n, along_n)):
        variance = variance + ra.square() * (alpha_x + beta_x * along.square())
        variance = variance + d * alpha_a * alpha_x + alpha_a * beta_x + beta_a * alpha_x
        variance = variance + beta_a * beta_x * along.square()
    return 2 * ra * towards, 4 * variance.clamp_min(torch.finfo(torch.float64).tiny)
