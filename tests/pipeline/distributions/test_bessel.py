"""log C_d, A_d and their derivatives against mpmath at 60 digits."""

import math

import pytest
import torch
from torch.func import grad, vmap

from benchmarks.vmf_accuracy import DIMENSIONS, KAPPAS, truth
from pipeline.distributions import bessel_ratio, bessel_ratio_derivative, log_hyp0f1, log_normalizer

AWAY = torch.tensor([0.0, 0.3, 2.0, 11.0, 170.0, 5e4], dtype=torch.float64)
FUNCTIONS = [log_hyp0f1, bessel_ratio, bessel_ratio_derivative]


@pytest.mark.parametrize("d", DIMENSIONS)
def test_against_60_digits(d):
    kappa = KAPPAS.clone().requires_grad_()
    slope = bessel_ratio_derivative(kappa, d)
    (bend,) = torch.autograd.grad(slope.sum(), kappa)
    ours = [log_normalizer(kappa, d), log_hyp0f1(kappa, d), bessel_ratio(kappa, d), slope, bend]
    theirs = torch.tensor([truth(d, value)[:5] for value in KAPPAS.tolist()], dtype=torch.float64).T
    for name, mine, wanted, tolerance in zip(
        ["log C", "L", "A", "A′", "A″"], ours, theirs, [1e-13, 1e-14, 1e-13, 1e-12, 1e-6], strict=True
    ):
        error = ((mine.detach() - wanted) / wanted).abs().max()
        assert error < tolerance, f"{name}: {error:.1e}"


@pytest.mark.parametrize("d", [2, 3, 8, 33, 34, 1024])
def test_at_zero(d):
    zero = torch.zeros(1, dtype=torch.float64, requires_grad=True)
    area = 2 * math.pi ** (d / 2) / math.gamma(d / 2) if d < 300 else None
    assert log_hyp0f1(zero, d).item() == 0
    assert bessel_ratio(zero, d).item() == 0
    assert bessel_ratio_derivative(zero, d).item() == pytest.approx(1 / d, rel=1e-14)
    if area is not None:
        assert log_normalizer(zero, d).item() == pytest.approx(-math.log(area), rel=1e-13)
    for function in FUNCTIONS:
        (slope,) = torch.autograd.grad(function(zero, d).sum(), zero)
        assert slope.isfinite().all()


@pytest.mark.parametrize("d", [2, 3, 10, 64, 1024])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_gradients_and_their_gradients(function, d):
    kappa = AWAY.clone().requires_grad_()
    assert torch.autograd.gradcheck(function, (kappa, d), eps=1e-5, atol=1e-9)
    assert torch.autograd.gradgradcheck(function, (kappa, d), eps=1e-4, atol=1e-7)


def test_the_gradient_of_the_normalizer_is_the_ratio():
    kappa = KAPPAS.clone().requires_grad_()
    (slope,) = torch.autograd.grad(log_normalizer(kappa, 10).sum(), kappa)
    assert torch.equal(slope, -bessel_ratio(KAPPAS, 10))


def test_every_float_gives_a_number():
    kappa = torch.tensor([0.0, 1e-300, 1e-40, 1e-8, 1e8, 1e15], dtype=torch.float64, requires_grad=True)
    for d in DIMENSIONS:
        for function in FUNCTIONS:
            value = function(kappa, d)
            (slope,) = torch.autograd.grad(value.sum(), kappa)
            assert value.isfinite().all()
            assert slope.isfinite().all()
    assert log_hyp0f1(torch.tensor([3.0], dtype=torch.bfloat16), 4).dtype == torch.float64


def test_vmap_gives_the_same_bits():
    kappa_MB = torch.rand(3, 5, dtype=torch.float64) * 100
    for function in FUNCTIONS:
        alone = torch.stack([function(kappa_B, 12) for kappa_B in kappa_MB])
        assert torch.equal(vmap(lambda kappa_B, f=function: f(kappa_B, 12))(kappa_MB), alone)
    slopes = vmap(vmap(grad(lambda kappa: log_hyp0f1(kappa, 12))))(kappa_MB)
    assert torch.equal(slopes, bessel_ratio(kappa_MB, 12))


def test_autocast_changes_nothing():
    kappa = torch.tensor([0.5, 900.0])
    wanted = log_normalizer(kappa, 1024)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(log_normalizer(kappa, 1024), wanted)


def test_nothing_is_left_on_the_cpu():
    """A device without numbers, which refuses to mix with any other."""
    for function in FUNCTIONS:
        kappa = torch.ones(3, device="meta", requires_grad=True)
        (slope,) = torch.autograd.grad(function(kappa, 10).sum(), kappa)
        assert slope.device.type == "meta"
