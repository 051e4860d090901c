"""From samples to κ, and regions of a credible level."""

import math

import pytest
import torch
from scipy.integrate import quad
from torch.nn.functional import normalize

from benchmarks.vmf_accuracy import DIMENSIONS, KAPPAS
from pipeline.distributions import (
    VonMisesFisher,
    bessel_ratio,
    bessel_ratio_derivative,
    concentration_of_mean,
    cosine_quadrature,
    credible_cosine,
    credible_cosine_share,
    fit,
)


@pytest.mark.parametrize("d", DIMENSIONS)
def test_the_concentration_comes_back_from_the_length_of_the_mean(d):
    """As far as R̄ tells: where A′ is small, a rounding of A is many κ."""
    found = concentration_of_mean(bessel_ratio(KAPPAS, d), d)
    rounding = 4e-16 / (KAPPAS * bessel_ratio_derivative(KAPPAS, d))
    assert ((found / KAPPAS - 1).abs() < 1e-9 + 10 * rounding).all()


def test_extreme_means_and_the_gradient():
    length = torch.tensor([0.0, 1e-12, 0.5, 1.0], dtype=torch.float64, requires_grad=True)
    kappa = concentration_of_mean(length, 10)
    assert kappa.isfinite().all()
    assert kappa[0] == 0
    (slope,) = torch.autograd.grad(kappa[:3].sum(), length)
    assert torch.allclose(slope[:3], 1 / bessel_ratio_derivative(kappa[:3].detach(), 10))


@pytest.mark.parametrize(("d", "kappa"), [(2, 2.0), (10, 30.0), (512, 900.0)])
def test_the_fit_maximises_the_likelihood(d, kappa):
    loc = normalize(torch.randn(d, dtype=torch.float64, generator=torch.Generator().manual_seed(0)), dim=0)
    x_nd = VonMisesFisher(loc, torch.tensor(kappa, dtype=torch.float64)).sample(
        (2000,), torch.Generator().manual_seed(1)
    )
    mu, found = fit(x_nd)
    assert found.item() == pytest.approx(kappa, rel=0.1)
    best = VonMisesFisher(mu, found).log_prob(x_nd).mean()
    for factor in (0.99, 1.01):
        assert VonMisesFisher(mu, found * factor).log_prob(x_nd).mean() < best
    assert VonMisesFisher(loc, found).log_prob(x_nd).mean() < best


@pytest.mark.parametrize("d", [2, 3, 10, 200])
@pytest.mark.parametrize("kappa", [0.0, 0.4, 15.0, 3000.0])
def test_the_share_against_an_integral(d, kappa):
    def density(theta):
        return math.exp(-2 * kappa * math.sin(theta / 2) ** 2) * (math.sin(theta) / math.sin(mean)) ** (d - 2)

    mean = math.acos(bessel_ratio(torch.tensor(kappa), d).item())
    far = min(math.pi, 8 * mean)
    whole = quad(density, 0, far, points=[mean / 2, mean, 2 * mean if 2 * mean < far else mean], limit=200)[0]
    for factor in (0.8, 1.0, 1.1):
        theta = min(mean * factor, 3.1)
        share = credible_cosine_share(torch.tensor(kappa), torch.tensor(theta, dtype=torch.float64).cos(), d)
        assert share.item() == pytest.approx(quad(density, 0, theta)[0] / whole, abs=1e-7)


@pytest.mark.parametrize("d", [2, 3, 10, 192, 4096])
def test_the_region_of_a_level_holds_that_share(d):
    kappa, level = torch.meshgrid(
        torch.tensor([0.0, 1e-2, 1.0, 50.0, 1e4], dtype=torch.float64),
        torch.tensor([1e-4, 0.05, 0.5, 0.95, 0.999], dtype=torch.float64),
        indexing="ij",
    )
    cosine = credible_cosine(kappa, level, d)
    assert (cosine.diff(dim=1) < 0).all()
    assert torch.allclose(credible_cosine_share(kappa, cosine, d), level, rtol=1e-4, atol=1e-9)  # 1 − c is rounded


@pytest.mark.parametrize("d", [2, 3, 10, 192, 4096])
def test_expectations_by_quadrature(d):
    kappa = torch.tensor([0.0, 1e-2, 1.0, 50.0, 1e4, 1e6], dtype=torch.float64)
    cosine, weight = cosine_quadrature(kappa, d, 16)
    mean = bessel_ratio(kappa, d)
    variance = (weight * (cosine - mean[:, None]).square()).sum(-1)
    assert torch.allclose((weight * cosine).sum(-1), mean, atol=1e-5)
    assert torch.allclose(variance, bessel_ratio_derivative(kappa, d), rtol=3e-3, atol=1e-12)


def test_the_quadrature_of_two_points():
    cosine, weight = cosine_quadrature(torch.tensor([0.0, 0.7], dtype=torch.float64), 1, 16)
    assert (weight * cosine).sum(-1).tolist() == pytest.approx([0, math.tanh(0.7)])


def test_levels_at_the_ends_and_outside():
    kappa = torch.tensor([0.0, 3.0])
    assert credible_cosine(kappa, 0.0, 5).tolist() == [1, 1]
    assert credible_cosine(kappa, 1.0, 5).tolist() == [-1, -1]
    with pytest.raises(ValueError, match="not between 0 and 1"):
        credible_cosine(kappa, 1.2, 5)


def test_the_region_of_a_level_has_a_gradient():
    kappa = torch.tensor([0.0, 20.0], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda value: credible_cosine(value, 0.9, 12), kappa, eps=1e-4, atol=1e-6)
