"""Samples of the von Mises–Fisher distribution and their gradients."""

import math

import pytest
import torch
from scipy.stats import kstest
from torch.nn.functional import normalize

from benchmarks.vmf_accuracy import DIMENSIONS, KAPPAS
from pipeline.distributions import VonMisesFisher, bessel_ratio, bessel_ratio_derivative, credible_cosine_share
from pipeline.distributions.angle import attach_gradient
from pipeline.distributions.vmf_sampling import draw_t, propose
from tests.pipeline.distributions.points import generator


def axis(d, place=0):
    return torch.eye(d, dtype=torch.float64)[place]


@pytest.mark.parametrize("d", DIMENSIONS)
def test_sample_means_and_their_gradients_over_the_grid(d):
    """Of t = 1 − μᵀx against 1 − A, of dt/dκ against −A′, each within four of its standard errors."""
    count = 2000
    kappa_nK = KAPPAS.expand(count, -1).clone().requires_grad_()
    t_nK = attach_gradient(draw_t(kappa_nK, d, generator(d)), kappa_nK, d, "implicit")
    (slope_nK,) = torch.autograd.grad(t_nK.sum(), kappa_nK)
    for found_nK, wanted_K in (
        (t_nK.detach(), 1 - bessel_ratio(KAPPAS, d)),
        (slope_nK, -bessel_ratio_derivative(KAPPAS, d)),
    ):
        error_K = found_nK.std(0) / math.sqrt(count)
        assert ((found_nK.mean(0) - wanted_K).abs() < 4 * error_K).all()


def test_acceptance_is_above_sixty_percent_everywhere():
    kappa_N = torch.cat([KAPPAS, torch.tensor([0.0, 3.0, 30.0, 300.0, 3000.0])]).repeat_interleave(1000)
    for d in DIMENSIONS:
        _, accepted_N = propose(kappa_N, d, generator(d))
        assert accepted_N.view(-1, 1000).double().mean(1).min() > 0.6  # 0.65 less three standard errors


@pytest.mark.parametrize("d", [2, 3, 4, 10, 1024])
@pytest.mark.parametrize("kappa", [0.0, 0.5, 20.0, 5e4])
def test_the_cosine_has_its_distribution(d, kappa):
    kappa_N = torch.full((1500,), kappa, dtype=torch.float64)
    t_N = draw_t(kappa_N, d, generator(3))
    share_N = credible_cosine_share(kappa_N, 1 - t_N, d)  # uniform, if the cosines are right
    assert kstest(share_N.numpy(), "uniform").pvalue > 1e-3


@pytest.mark.parametrize("loc", [axis(5), -axis(5), axis(5, 2), normalize(torch.ones(5, dtype=torch.float64), dim=0)])
def test_directions_around_the_mean_are_alike(loc):
    x_nd = VonMisesFisher(loc, torch.tensor(4.0, dtype=torch.float64)).sample((20000,), generator(1))
    assert torch.allclose(torch.linalg.vector_norm(x_nd, dim=-1), torch.ones(20000, dtype=torch.float64), atol=1e-12)
    distribution = VonMisesFisher(loc, torch.tensor(4.0, dtype=torch.float64))
    assert ((x_nd.mean(0) - distribution.mean).abs() < 4 * (distribution.variance / 20000).sqrt()).all()
    assert torch.allclose(x_nd.var(0), distribution.variance, rtol=0.05)
    across = distribution.variance[(loc.abs() < 1e-9)]
    assert torch.allclose(across, bessel_ratio(torch.tensor(4.0), 5).expand(across.shape) / 4, rtol=1e-12)


@pytest.mark.parametrize("d", [2, 3, 10])
def test_the_gradient_in_the_direction(d):
    """E[aᵀx] = A·aᵀμ, so on the sphere its gradient in μ is A(a − aᵀμ μ)."""
    a_d, loc_d = torch.randn(2, d, dtype=torch.float64, generator=generator(5))
    loc_d = normalize(loc_d, dim=0).requires_grad_()
    kappa = torch.tensor(3.0, dtype=torch.float64)
    x_nd = VonMisesFisher(loc_d.expand(40000, d), kappa).rsample(generator=generator(6))
    slope_d = torch.autograd.grad((x_nd @ a_d).mean(), loc_d)[0]
    loc_d = loc_d.detach()
    slope_d = slope_d - slope_d @ loc_d * loc_d
    wanted_d = bessel_ratio(kappa, d) * (a_d - a_d @ loc_d * loc_d)
    assert torch.allclose(slope_d, wanted_d, atol=0.03)


def test_the_naive_gradient_is_biased_in_low_dimensions_and_the_implicit_one_is_not():
    for d, kappa, bias in ((5, 2.0, 0.13), (1024, 100.0, 0.001)):
        kappa_N = torch.full((40000,), kappa, dtype=torch.float64, requires_grad=True)
        t_N = draw_t(kappa_N, d, generator(8))
        found = {}
        for kind in ("implicit", "pathwise"):
            (slope_N,) = torch.autograd.grad(attach_gradient(t_N, kappa_N, d, kind).sum(), kappa_N)
            found[kind] = -slope_N.mean().item()
        wanted = bessel_ratio_derivative(torch.tensor(kappa), d).item()
        assert found["implicit"] == pytest.approx(wanted, rel=0.01)
        assert abs(found["pathwise"] / wanted - 1) == pytest.approx(bias, rel=0.2, abs=0.001)


def test_the_implicit_gradient_is_that_of_the_inverse_in_three_dimensions():
    """For d = 3, w(κ) at a fixed share u has a closed form, which autograd differentiates."""
    u_N = torch.linspace(0.01, 0.99, 25, dtype=torch.float64)
    for kappa in (0.2, 3.0, 40.0):
        kappa_N = torch.full_like(u_N, kappa).requires_grad_()
        t_N = -torch.log1p(u_N * torch.expm1(-2 * kappa_N)) / kappa_N
        (wanted_N,) = torch.autograd.grad(t_N.sum(), kappa_N)
        (slope_N,) = torch.autograd.grad(attach_gradient(t_N.detach(), kappa_N, 3, "implicit").sum(), kappa_N)
        assert torch.allclose(slope_N, wanted_N, rtol=1e-6)


def test_shapes_seeds_and_dtypes():
    loc_BD = normalize(torch.randn(4, 6, generator=generator()), dim=-1)
    distribution = VonMisesFisher(loc_BD, torch.tensor([0.0, 1.0, 50.0, 1e6]))
    first, again = (distribution.rsample((3, 2), generator(7)) for _ in range(2))
    assert first.shape == (3, 2, 4, 6)
    assert first.dtype == torch.float32
    assert torch.equal(first, again)
    assert torch.equal(distribution.expand((5, 4)).mean[2], distribution.mean)
    assert VonMisesFisher(loc_BD.bfloat16(), torch.tensor(1.0)).sample().dtype == torch.float32


@pytest.mark.parametrize("d", [2, 3, 700])
def test_gradients_are_finite_from_uniform_to_a_point(d):
    kappa_N = torch.tensor([0.0, 1e-20, 1.0, 1e6], dtype=torch.float32).repeat(200).requires_grad_()
    loc_Nd = axis(d).float().expand(800, d).clone().requires_grad_()
    x_Nd = VonMisesFisher(loc_Nd, kappa_N, validate_args=False).rsample(generator=generator())
    assert x_Nd.isfinite().all()
    x_Nd.square().sum(-1).mul(torch.arange(800)).sum().backward()
    assert kappa_N.grad.isfinite().all()
    assert loc_Nd.grad.isfinite().all()


def test_what_is_not_a_number_stays_so_and_ends():
    t_N = draw_t(torch.tensor([torch.nan, 2.0, torch.inf]), 7, generator())
    assert t_N.isnan().tolist() == [True, False, True]
