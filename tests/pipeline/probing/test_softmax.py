"""The gradient against autograd, in any blocks; the schedule; classifiers that go on as if nothing had happened."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, linear

from pipeline.probing.logistic import fit, zero
from pipeline.probing.softmax import Scratch, SoftmaxClassifier, gradient, mean_loss, rate_at

CPU = torch.device("cpu")
B, D, C = 37, 5, 11


def problem(rows: int = B) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(rows, D, generator=generator), torch.randint(C - 1, (rows,), generator=generator)


@pytest.mark.parametrize("rows_at_once", [1, 10, 1000])
def test_gradient_and_loss_are_autograds(rows_at_once: int) -> None:
    features_BD, label_B = problem()
    generator = torch.Generator().manual_seed(1)
    weight_CD, bias_C = 3 * torch.randn(C, D, generator=generator), torch.randn(C, generator=generator)
    scratch = Scratch(C, D, CPU, logits_bytes=4 * C * rows_at_once)
    assert scratch.rows == rows_at_once
    loss = gradient(features_BD, label_B, weight_CD, bias_C, scratch)
    wanted = weight_CD.double().requires_grad_(), bias_C.double().requires_grad_()
    expected = cross_entropy(linear(features_BD.double(), *wanted), label_B)
    expected.backward()
    value = pytest.approx(float(expected.detach()), rel=1e-5)
    assert float(loss) == value
    assert mean_loss(features_BD, label_B, weight_CD, bias_C, scratch) == value
    torch.testing.assert_close(scratch.weight_CD.double(), wanted[0].grad, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(scratch.bias_C.double(), wanted[1].grad, rtol=1e-4, atol=1e-6)


def test_logits_far_apart_overflow_nothing() -> None:
    features_BD, label_B = problem()
    scratch = Scratch(C, D, CPU)
    loss = gradient(features_BD, label_B, torch.full((C, D), 1e4).tril(), torch.zeros(C), scratch)
    assert loss.isfinite()
    assert scratch.weight_CD.isfinite().all()


def test_the_rate_rises_then_falls_and_is_never_zero() -> None:
    rates = [rate_at(step, 100) for step in range(100)]
    top = rates.index(1.0)
    assert 0 < rates[0] < 1 / 4
    assert top <= 5
    assert (np.diff(rates[:top]) > 0).all()
    assert (np.diff(rates[6:]) < 0).all()
    assert 0 < rates[-1] < 0.02
    assert 0 < rate_at(0, 1) <= 1


def test_full_batches_come_to_the_exact_minimum() -> None:
    """With the whole data in each batch nothing is random, and the end is that of L-BFGS."""
    features_BD, label_B = problem(rows=200)
    scratch = Scratch(C, D, CPU)
    one = SoftmaxClassifier(leave_out=None, l2=0.01, like=scratch)
    for step in range(400):
        one.step(features_BD, label_B, np.zeros(200, np.int8), 0.1 * rate_at(step, 400), scratch)
    exact = fit(features_BD, label_B, l2=0.01, start=zero(C, features_BD), max_iterations=500)
    torch.testing.assert_close(one.weight_CD.detach()[:-1], exact.weight_CD[:-1], rtol=0, atol=3e-3)
    # the bias of the class without rows falls for ever, and is finite
    torch.testing.assert_close(one.bias_C.detach()[:-1] - one.bias_C[0].detach(), exact.bias_C[:-1] - exact.bias_C[0],
                               rtol=0, atol=1e-2)  # fmt: skip
    assert one.bias_C.isfinite().all()


def test_the_fold_that_is_left_out_is_not_seen() -> None:
    features_BD, label_B = problem()
    fold_B = (np.arange(B) % 3).astype(np.int8)
    other_B = torch.where(torch.from_numpy(fold_B == 1), (label_B + 1) % C, label_B)
    ends = []
    for labels_B in (label_B, other_B):
        scratch = Scratch(C, D, CPU)
        pair = [SoftmaxClassifier(leave_out=fold, l2=0.1, like=scratch) for fold in (1, None)]
        for _ in range(3):
            for one in pair:
                one.step(features_BD, labels_B, fold_B, 0.1, scratch)
        ends.append([one.weight_CD.detach().clone() for one in pair])
    assert torch.equal(ends[0][0], ends[1][0])
    assert not torch.equal(ends[0][1], ends[1][1])


def test_a_batch_of_the_left_out_fold_alone_is_no_step() -> None:
    features_BD, label_B = problem()
    scratch = Scratch(C, D, CPU)
    one = SoftmaxClassifier(leave_out=0, l2=0.1, like=scratch)
    one.step(features_BD, label_B, np.zeros(B, np.int8), 0.1, scratch)
    assert not one.weight_CD.any()
    assert one.loss.isnan()


def test_what_is_restored_goes_on_with_the_same_bits() -> None:
    features_BD, label_B = problem()
    fold_B, scratch = np.zeros(B, np.int8), Scratch(C, D, CPU)
    one, two = (SoftmaxClassifier(leave_out=None, l2=0.1, like=scratch) for _ in range(2))
    for _ in range(3):
        one.step(features_BD, label_B, fold_B, 0.1, scratch)
    two.restore({name: value.clone() for name, value in one.state().items()})
    for either in (one, two):
        for _ in range(3):
            either.step(features_BD, label_B, fold_B, 0.1, scratch)
    assert all(torch.equal(value, two.state()[name]) for name, value in one.state().items())
    assert len(one.state()) == 3 + 2 * 3
