"""Heads with nothing to train, against the formulas."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.special import logsumexp
from scipy.stats import entropy, kstest

from pipeline.errors import UserError
from pipeline.heads import make_head
from pipeline.heads.base import LinearClassifier, Summary


def ready(kind, classifier=None, seed=0, width=4):
    head = make_head({"kind": kind}, seed=seed)
    head.prepare(Summary(width=width, rows=10, num_classes=3, classifier=classifier))
    return head


def test_entropy_by_hand():
    classifier = LinearClassifier(
        weight_CD=torch.tensor([[1.0, 0.0], [0.0, 1.0]]), bias_C=torch.tensor([0.0, math.log(3)])
    )
    head = ready("classifier_entropy", classifier, width=2)
    # logits (0, log 3) → ¼, ¾; (log 3, log 3) → ½, ½; (1000, log 3) → 1, 0
    x_BD = torch.tensor([[0.0, 0.0], [math.log(3), 0.0], [1000.0, 0.0]])
    expected = [-(0.25 * math.log(0.25) + 0.75 * math.log(0.75)), math.log(2), 0.0]
    np.testing.assert_allclose(head(x_BD).uncertainty_B.numpy(), expected, atol=1e-6)


def test_entropy_against_scipy():
    rng = np.random.default_rng(0)
    weight, bias, x = rng.normal(size=(50, 8)), rng.normal(size=50), rng.normal(size=(20, 8))
    logits = x @ weight.T + bias
    expected = entropy(np.exp(logits - logsumexp(logits, axis=1, keepdims=True)), axis=1)
    classifier = LinearClassifier(weight_CD=torch.from_numpy(weight), bias_C=torch.from_numpy(bias))
    got = ready("classifier_entropy", classifier, width=8)(torch.from_numpy(x).float()).uncertainty_B
    np.testing.assert_allclose(got.numpy(), expected, rtol=1e-4, atol=1e-6)


def test_entropy_without_a_classifier_says_what_to_do():
    with pytest.raises(UserError, match="stage=probe"):
        ready("classifier_entropy")


def test_inverse_norm_by_hand():
    got = ready("inverse_norm")(torch.tensor([[3.0, 4.0, 0.0, 0.0], [0.0] * 4, [0.1, 0.0, 0.0, 0.0]])).uncertainty_B
    assert got[0].item() == pytest.approx(0.2)
    assert got[2].item() == pytest.approx(10)
    assert got[1] > 1e30
    assert got.isfinite().all()


def test_random_is_uniform_and_a_row_keeps_its_number():
    x_BD = torch.randn(4000, 4, generator=torch.Generator().manual_seed(0))
    head = ready("random")
    got = head(x_BD).uncertainty_B
    assert kstest(got.numpy(), "uniform").pvalue > 1e-3
    order = torch.randperm(4000, generator=torch.Generator().manual_seed(1))
    assert torch.equal(head(x_BD[order]).uncertainty_B, got[order])
    assert torch.equal(torch.cat([head(part).uncertainty_B for part in x_BD.split(7)]), got)
    half_BD = x_BD.half()
    assert torch.equal(head(half_BD).uncertainty_B, head(half_BD.float()).uncertainty_B)


def test_random_depends_on_every_value_and_its_place_and_on_the_seed():
    x_BD = torch.tensor([[1.0, 2.0, 3.0, 4.0], [2.0, 1.0, 3.0, 4.0], [1.0, 2.0, 3.0, 4.0000005]])
    assert len(set(ready("random")(x_BD).uncertainty_B.tolist())) == 3
    by_seed = [
        ready("random", seed=seed)(torch.randn(2000, 4, generator=torch.Generator().manual_seed(0))).uncertainty_B
        for seed in (0, 1, 2**31 - 1)
    ]
    for a, b in ((0, 1), (0, 2), (1, 2)):
        assert abs(np.corrcoef(by_seed[a].numpy(), by_seed[b].numpy())[0, 1]) < 0.1
