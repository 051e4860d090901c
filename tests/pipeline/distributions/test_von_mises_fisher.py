"""The density, its entropy and divergences, the closed distances."""

import pytest
import torch
from torch.distributions import kl_divergence
from torch.nn.functional import normalize

from pipeline.distributions import (
    HypersphericalUniform,
    VonMisesFisher,
    bhattacharyya,
    expected_likelihood,
    kullback_leibler,
)
from pipeline.distributions.angle import attach_gradient
from tests.pipeline.distributions.points import generator, sphere, within_four_errors

COUNT = 20000


def some(d, kappa, seed=0):
    loc = normalize(torch.randn(d, dtype=torch.float64, generator=generator(seed)), dim=0)
    return VonMisesFisher(loc, torch.tensor(float(kappa), dtype=torch.float64))


@pytest.mark.parametrize("kappa", [0.0, 0.7, 12.0, 60.0])
def test_the_density_integrates_to_one_on_the_sphere(kappa):
    distribution = some(3, kappa)
    x, weight = sphere()
    assert (distribution.log_prob(x).exp() * weight).sum().item() == pytest.approx(1, abs=1e-9)
    mean = (distribution.log_prob(x).exp() * weight)[:, None] * x
    assert torch.allclose(mean.sum(0), distribution.mean, atol=1e-9)


def test_the_density_integrates_to_one_in_eight_dimensions():
    distribution, uniform = some(8, 6), HypersphericalUniform(8, dtype=torch.float64)
    x_Nd = uniform.rsample((COUNT,), generator())
    density_N = (distribution.log_prob(x_Nd) - uniform.log_prob(x_Nd)).exp()
    assert within_four_errors(density_N, 1)


@pytest.mark.parametrize(("d", "kappa"), [(2, 3.0), (8, 6.0), (8, 0.0), (64, 400.0)])
def test_entropy_and_divergences_are_what_samples_say(d, kappa):
    p, q, uniform = some(d, kappa), some(d, 2.5, seed=1), HypersphericalUniform(d, dtype=torch.float64)
    x_Nd = p.sample((COUNT,), generator(2))
    log_p_N = p.log_prob(x_Nd)
    assert within_four_errors(-log_p_N, p.entropy())
    assert within_four_errors(log_p_N - q.log_prob(x_Nd), kl_divergence(p, q))
    assert within_four_errors(log_p_N - uniform.log_prob(x_Nd), kl_divergence(p, uniform))
    u_Nd = uniform.rsample((COUNT,), generator(3))
    assert within_four_errors(uniform.log_prob(u_Nd) - p.log_prob(u_Nd), kl_divergence(uniform, p))
    assert kl_divergence(p, p).item() == 0
    assert uniform.entropy().item() == pytest.approx(some(d, 0).entropy().item(), rel=1e-6)


@pytest.mark.parametrize(
    ("d", "kappa_a", "kappa_b"), [(3, 2.0, 5.0), (10, 20.0, 16.0), (64, 50.0, 30.0), (8, 0.0, 3.0)]
)
def test_distances_are_what_samples_say(d, kappa_a, kappa_b):
    a, b = some(d, kappa_a), some(d, kappa_b, seed=1)
    if kappa_a:  # near enough that the samples of a say something of b
        b = VonMisesFisher(normalize(a.loc + 0.5 * b.loc, dim=0), b.concentration)
    parameters = (a.concentration, b.concentration, a.loc @ b.loc, d)
    x_Nd = a.sample((COUNT,), generator(4))
    assert within_four_errors(b.log_prob(x_Nd).exp(), expected_likelihood(*parameters).neg().exp())
    half_N = ((b.log_prob(x_Nd) - a.log_prob(x_Nd)) / 2).exp()
    assert within_four_errors(half_N, bhattacharyya(*parameters).neg().exp())
    assert within_four_errors(a.log_prob(x_Nd) - b.log_prob(x_Nd), kullback_leibler(*parameters))
    assert kullback_leibler(*parameters).item() == pytest.approx(kl_divergence(a, b).item(), rel=1e-9)


def test_distances_and_gradients_are_finite_for_opposite_and_equal_distributions():
    for kappa in (0.0, 1e-3, 7.0, 1e6):
        for cosine in (-1.0, 1.0, -1.0000001):
            inputs = [torch.tensor(value, dtype=torch.float32, requires_grad=True) for value in (kappa, kappa, cosine)]
            for distance in (expected_likelihood, bhattacharyya, kullback_leibler):
                value = distance(*inputs, 32)
                assert value.isfinite()
                assert all(slope.isfinite() for slope in torch.autograd.grad(value, inputs))
    same = torch.tensor(30.0), torch.tensor(30.0), torch.tensor(1.0), 16
    assert bhattacharyya(*same).item() == pytest.approx(0, abs=1e-6)


def test_distances_pass_gradcheck():
    inputs = tuple(torch.tensor(value, dtype=torch.float64, requires_grad=True) for value in (4.0, 9.0, 0.3))
    for distance in (expected_likelihood, bhattacharyya, kullback_leibler):
        assert torch.autograd.gradcheck(lambda *given, f=distance: f(*given, 10), inputs)
        assert torch.autograd.gradgradcheck(lambda *given, f=distance: f(*given, 10), inputs)


def test_the_density_passes_gradcheck():
    loc, x = (normalize(torch.randn(3, 5, dtype=torch.float64, generator=generator(s)), dim=-1) for s in (0, 1))
    kappa = torch.tensor([0.5, 3.0, 80.0], dtype=torch.float64, requires_grad=True)

    def value(loc, kappa):
        p = VonMisesFisher(loc, kappa, validate_args=False)
        return p.log_prob(x), p.entropy(), p.mean, p.variance, kl_divergence(p, some(5, 2))

    assert torch.autograd.gradcheck(value, (loc.requires_grad_(), kappa))


def test_float32_keeps_the_density_of_a_sharp_distribution():
    exact = some(1024, 1e6)
    x_Nd = exact.sample((50,), generator())
    rough = VonMisesFisher(exact.loc.float(), exact.concentration.float())
    assert torch.allclose(rough.log_prob(x_Nd.float()).double(), exact.log_prob(x_Nd), rtol=2e-6)


def test_one_graph_under_compile():
    def value(loc, kappa, x):
        return VonMisesFisher(loc, kappa, validate_args=False).log_prob(x).sum()

    loc, x = (normalize(torch.randn(3, 4096, generator=generator(s)), dim=-1) for s in (0, 1))
    compiled = torch.compile(value, fullgraph=True, backend="aot_eager")
    results = []
    for function in (value, compiled):
        kappa = torch.tensor([0.5, 3.0, 800.0], requires_grad=True)
        found = function(loc, kappa, x)
        results.append((found, *torch.autograd.grad(found, kappa)))
    for plain, graph in zip(*results, strict=True):
        torch.testing.assert_close(plain, graph)


def test_under_vmap():
    loc_MBd = normalize(torch.randn(2, 3, 5, generator=generator()), dim=-1)
    kappa_MB = torch.rand(2, 3, generator=generator(1)) * 9

    def value(loc, kappa):
        p = VonMisesFisher(loc, kappa, validate_args=False)
        return p.log_prob(loc_MBd[0]) + p.entropy() + kl_divergence(p, HypersphericalUniform(5))

    together = torch.func.vmap(value)(loc_MBd, kappa_MB)
    assert torch.allclose(together, torch.stack([value(*pair) for pair in zip(loc_MBd, kappa_MB, strict=True)]))


def test_errors_say_what_is_wrong():
    with pytest.raises(ValueError, match="at least 2 coordinates"):
        VonMisesFisher(torch.ones(3, 1), torch.ones(3))
    with pytest.raises(ValueError, match="does not go with that of loc"):
        VonMisesFisher(torch.ones(3, 2), torch.ones(4))
    with pytest.raises(ValueError, match="loc"):
        VonMisesFisher(torch.ones(3), torch.tensor(1.0), validate_args=True)
    with pytest.raises(ValueError, match="concentration"):
        VonMisesFisher(torch.eye(3)[0], torch.tensor(-1.0), validate_args=True)
    with pytest.raises(ValueError, match="implicit"):
        VonMisesFisher(torch.eye(3)[0], torch.tensor(1.0), gradient="naive")
    with pytest.raises(ValueError, match="within the support"):
        VonMisesFisher(torch.eye(3)[0], torch.tensor(1.0), validate_args=True).log_prob(torch.ones(3))
    with pytest.raises(ValueError, match="3 and 4 dimensions"):
        kl_divergence(some(3, 1), some(4, 1))
    with pytest.raises(ValueError, match="below 2"):
        HypersphericalUniform(1)


def test_nothing_is_left_on_the_cpu():
    p = VonMisesFisher(torch.ones(3, 5, device="meta"), torch.ones(3, device="meta"), validate_args=False)
    values = [p.log_prob(p.loc), p.entropy(), p.mean, p.variance, kl_divergence(p, p)]
    t, kappa = torch.ones(2, 3, dtype=torch.float64, device="meta").requires_grad_()
    values += torch.autograd.grad(attach_gradient(t, kappa, 5, "implicit").sum(), kappa)
    assert {value.device.type for value in values} == {"meta"}


def test_blocks_change_nothing(monkeypatch):
    kappa_a = torch.rand(40, 1, generator=generator()) * 50
    kappa_b, cosine = torch.rand(7, generator=generator(1)) * 90, torch.rand(40, 7, generator=generator(2)) * 2 - 1
    results = []
    for size in (1 << 15, 16):  # 280 pairs in one block, or in twenty
        monkeypatch.setattr("pipeline.distributions.bessel.BLOCK", size)
        given = [value.clone().requires_grad_() for value in (kappa_a, kappa_b, cosine)]
        distance = expected_likelihood(*given, 24)
        results.append([distance, *torch.autograd.grad(distance.square().sum(), given)])
    assert all(torch.equal(whole, parts) for whole, parts in zip(*results, strict=True))
