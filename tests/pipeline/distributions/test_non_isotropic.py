"""nivMF: what is a density, what is not, and samples."""

import math

import pytest
import torch
from torch.nn.functional import normalize

from pipeline.distributions import (
    HypersphericalUniform,
    NonIsotropicVonMisesFisher,
    VonMisesFisher,
    expected_likelihood,
    expected_likelihood_by_samples,
)
from tests.pipeline.distributions.points import generator, sphere, within_four_errors


def made(d, density="exact", seed=0, largest=6.0):
    loc = normalize(torch.randn(d, dtype=torch.float64, generator=generator(seed)), dim=0)
    kappa = 0.5 + largest * torch.rand(d, dtype=torch.float64, generator=generator(seed + 1))
    return NonIsotropicVonMisesFisher(loc, kappa, density=density)


@pytest.mark.parametrize("seed", [0, 3])
def test_the_exact_density_integrates_to_one_on_the_sphere(seed):
    x, weight = sphere(120, 120)
    assert (made(3, seed=seed).log_prob(x).exp() * weight).sum().item() == pytest.approx(1, abs=1e-6)


def test_the_papers_density_does_not():
    x, weight = sphere(120, 120)
    loc, kappa = torch.eye(3, dtype=torch.float64)[0], torch.tensor([8.0, 4.0, 2.0], dtype=torch.float64)
    total = (NonIsotropicVonMisesFisher(loc, kappa, density="paper").log_prob(x).exp() * weight).sum()
    assert total.item() == pytest.approx(23.298, abs=1e-3)


def test_the_exact_density_integrates_to_one_in_eight_dimensions():
    distribution, uniform = made(8, largest=2.0), HypersphericalUniform(8, dtype=torch.float64)
    x_Nd = uniform.rsample((20000,), generator(2))
    assert within_four_errors((distribution.log_prob(x_Nd) - uniform.log_prob(x_Nd)).exp(), 1)


def test_samples_follow_the_density():
    """E_p[q(x)/p(x)] = 1 for any density q: here the uniform one and another nivMF."""
    p, uniform = made(4, largest=3.0), HypersphericalUniform(4, dtype=torch.float64)
    x_Nd = p.sample((20000,), generator(4))
    for q in (uniform, made(4, seed=7, largest=2.0)):
        assert within_four_errors((q.log_prob(x_Nd) - p.log_prob(x_Nd)).exp(), 1)


def test_of_equal_concentrations_it_is_the_isotropic_one():
    loc = normalize(torch.ones(6, dtype=torch.float64), dim=0)
    x_Nd = HypersphericalUniform(6, dtype=torch.float64).rsample((5,), generator())
    isotropic = VonMisesFisher(loc, torch.tensor(3.0, dtype=torch.float64)).log_prob(x_Nd)
    equal = torch.full((6,), 3.0, dtype=torch.float64)
    assert torch.allclose(NonIsotropicVonMisesFisher(loc, equal).log_prob(x_Nd), isotropic)
    paper = NonIsotropicVonMisesFisher(loc, equal, density="paper").log_prob(x_Nd)
    assert torch.allclose(paper - isotropic, torch.full((5,), 5 * math.log(3), dtype=torch.float64))


@pytest.mark.parametrize("density", ["exact", "paper"])
def test_all_pairs_at_once_are_the_pairs(density):
    loc_Cd = normalize(torch.randn(7, 40, generator=generator()), dim=-1)
    kappa_Cd = 1 + torch.rand(7, 40, generator=generator(1))
    distribution = NonIsotropicVonMisesFisher(loc_Cd, kappa_Cd, density=density)
    x_Nd = normalize(torch.randn(9, 40, generator=generator(2)), dim=-1)
    wanted = torch.stack([distribution.log_prob(x_d) for x_d in x_Nd])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.testing.assert_close(distribution.pairwise_log_prob(x_Nd), wanted, rtol=1e-5, atol=1e-4)


def test_the_expected_likelihood_by_samples_is_that_of_the_closed_form():
    a = VonMisesFisher(torch.eye(5, dtype=torch.float64)[0], torch.tensor(9.0, dtype=torch.float64))
    b = NonIsotropicVonMisesFisher(
        normalize(torch.tensor([1.0, 1, 0, 0, 0]).double(), dim=0), torch.full((5,), 4.0).double()
    )
    by_samples = expected_likelihood_by_samples(b.log_prob(a.sample((40000,), generator(5))))
    exact = expected_likelihood(a.concentration, torch.tensor(4.0).double(), a.loc @ b.loc, 5)
    assert by_samples.item() == pytest.approx(exact.item(), abs=0.02)


def test_gradients_reach_every_parameter():
    loc = normalize(torch.randn(3, 5, dtype=torch.float64, generator=generator()), dim=-1)
    kappa = 1 + torch.rand(3, 5, dtype=torch.float64, generator=generator(1))
    x = normalize(torch.randn(3, 5, dtype=torch.float64, generator=generator(2)), dim=-1)
    for density in ("exact", "paper"):
        assert torch.autograd.gradcheck(
            lambda m, k, kind=density: NonIsotropicVonMisesFisher(m, k, density=kind, validate_args=False).log_prob(x),
            (loc.clone().requires_grad_(), kappa.clone().requires_grad_()),
        )
    loc.requires_grad_()
    kappa.requires_grad_()
    NonIsotropicVonMisesFisher(loc, kappa).rsample((4,), generator()).select(-1, 0).sum().backward()
    assert loc.grad.isfinite().all()
    assert kappa.grad.abs().min() > 0


def test_errors_say_what_is_wrong():
    with pytest.raises(NotImplementedError, match="density='exact'"):
        made(3, "paper").sample()
    with pytest.raises(ValueError, match="'exact' nor 'paper'"):
        made(3, "approximate")
    with pytest.raises(ValueError, match="one number for each coordinate"):
        NonIsotropicVonMisesFisher(torch.eye(3)[0], torch.ones(1))
    with pytest.raises(ValueError, match="concentration"):
        NonIsotropicVonMisesFisher(torch.eye(3)[0], torch.tensor([1.0, 0.0, 1.0]), validate_args=True)
    with pytest.raises(ValueError, match="one batch axis"):
        made(3).pairwise_log_prob(torch.eye(3).double())
