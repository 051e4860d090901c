"""Diagonal Gaussians and mixtures of them."""

import math

import pytest
import torch
from scipy.stats import multivariate_normal
from torch.distributions import Independent, Normal, kl_divergence

from pipeline.distributions import GaussianMixture, diagonal_gaussian, kl_to_standard_normal
from tests.pipeline.distributions.points import generator


def parameters(*shape, seed=0):
    loc, log_scale = torch.randn(2, *shape, dtype=torch.float64, generator=generator(seed))
    return loc, (log_scale / 2).exp()


def test_the_gaussian_against_scipy_and_torch():
    loc, scale = parameters(3, 2)
    gaussian = diagonal_gaussian(loc, scale)
    x = torch.randn(3, 2, dtype=torch.float64, generator=generator(1))
    wanted = [
        multivariate_normal(m.numpy(), torch.diag(s * s).numpy()).logpdf(y)
        for m, s, y in zip(loc, scale, x.numpy(), strict=True)
    ]
    assert gaussian.log_prob(x).tolist() == pytest.approx(wanted)
    standard = diagonal_gaussian(torch.zeros(3, 2).double(), torch.ones(3, 2).double())
    assert torch.allclose(kl_to_standard_normal(gaussian), kl_divergence(gaussian, standard))
    assert isinstance(gaussian, Independent)
    assert isinstance(gaussian.base_dist, Normal)


def test_the_mixture_is_the_sum_of_its_parts():
    loc, scale = parameters(4, 3, 2)
    logits = torch.randn(4, 3, dtype=torch.float64, generator=generator(2))
    x = torch.randn(4, 2, dtype=torch.float64, generator=generator(3))
    parts = torch.stack([diagonal_gaussian(loc[:, k], scale[:, k]).log_prob(x).exp() for k in range(3)], dim=1)
    assert torch.allclose(GaussianMixture(loc, scale, logits).log_prob(x).exp(), (logits.softmax(-1) * parts).sum(-1))
    assert torch.allclose(GaussianMixture(loc, scale).log_prob(x).exp(), parts.mean(-1))


def test_strata_hold_equally_many_and_weigh_as_they_should():
    loc, scale = torch.tensor([[-50.0], [50.0]]).double(), torch.ones(2, 1).double()
    mixture = GaussianMixture(loc, scale, torch.tensor([math.log(3.0), 0.0]).double())
    z, weight = mixture.stratified_rsample(500, generator())
    assert z.shape == (1000, 1)
    assert ((z > 0).sum().item(), weight.sum().item()) == (500, pytest.approx(1))
    assert (weight[:, None] * z).sum().item() == pytest.approx(-25, abs=0.2)
    assert weight[z[:, 0] < 0].sum().item() == pytest.approx(0.75)


def test_stratified_estimates_have_gradients_in_everything():
    """Of E‖z‖² = Σ π_k(‖μ_k‖² + Σσ_k²)."""
    loc, scale = parameters(3, 2)
    logits = torch.randn(3, dtype=torch.float64, generator=generator(4))
    given = [value.requires_grad_() for value in (loc, scale, logits)]
    z, weight = GaussianMixture(*given).stratified_rsample(100000, generator(5))
    found = torch.autograd.grad((weight * z.square().sum(-1)).sum(), given)
    exact = (logits.softmax(-1) * (loc.square() + scale.square()).sum(-1)).sum()
    for mine, wanted in zip(found, torch.autograd.grad(exact, given), strict=True):
        assert torch.allclose(mine, wanted, atol=0.03)


def test_the_divergence_of_the_mixture_by_samples():
    loc, scale = parameters(5, 1, 2)
    one = GaussianMixture(loc, scale)
    exact = kl_to_standard_normal(diagonal_gaussian(loc[:, 0], scale[:, 0]))
    assert torch.allclose(one.kl_to_standard_normal(40000, generator()), exact, atol=0.05)
    loc, scale = parameters(2, 3, 2)
    two = GaussianMixture(loc, scale)
    x = two.sample((60000,))
    standard = diagonal_gaussian(torch.zeros(2).double(), torch.ones(2).double())
    plain = (two.log_prob(x) - standard.log_prob(x)).mean(0)
    assert torch.allclose(two.kl_to_standard_normal(20000, generator(1)), plain, atol=0.08)


def test_shapes_and_errors():
    loc, scale = parameters(4, 3, 2)
    mixture = GaussianMixture(loc, scale).expand((7, 4))
    assert mixture.sample((5,)).shape == (5, 7, 4, 2)
    z, weight = mixture.stratified_rsample(5, generator())
    assert z.shape == (15, 7, 4, 2)
    assert weight.shape == (15, 7, 4)
    with pytest.raises(ValueError, match="component and coordinate"):
        GaussianMixture(torch.zeros(2), torch.ones(2))
    with pytest.raises(ValueError, match="scale"):
        diagonal_gaussian(torch.zeros(2), torch.zeros(2))
