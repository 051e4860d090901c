"""Agreement with scikit-learn, and the choice of the penalty."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from torch import Tensor
from torch.nn.functional import cross_entropy

from pipeline.probing.logistic import choose_l2, fit, zero
from pipeline.progress import Silent

BAR = Silent().bar("", None, "")


def problem(rows: int, width: int, classes: int, seed: int = 0, spread: float = 1.5) -> tuple[Tensor, Tensor]:
    """Overlapping clusters with an offset: the bias matters."""
    rng = np.random.default_rng(seed)
    label_N = rng.integers(classes, size=rows)
    centre_CD = rng.normal(size=(classes, width)) + 0.5
    features_ND = centre_CD[label_N] + spread * rng.normal(size=(rows, width))
    return torch.from_numpy(features_ND), torch.from_numpy(label_N)


@pytest.mark.parametrize("l2", [1e-1, 1e-3])
@pytest.mark.parametrize(("dtype", "close"), [(torch.float64, 1e-6), (torch.float32, 1e-4)])
def test_the_minimum_is_scikit_learns(l2: float, dtype: torch.dtype, close: float) -> None:
    features_ND, label_N = problem(rows=300, width=8, classes=4)
    ours = fit(
        features_ND.to(dtype), label_N, l2=l2, start=zero(4, features_ND.to(dtype)), max_iterations=500, tolerance=1e-8
    )
    theirs = LogisticRegression(C=1 / (l2 * len(label_N)), max_iter=2000, tol=1e-10).fit(features_ND, label_N)
    np.testing.assert_allclose(
        ours.loss(features_ND.to(dtype), label_N), log_loss(label_N, theirs.predict_proba(features_ND)), atol=close
    )
    probability_NC = torch.softmax(features_ND.to(dtype) @ ours.weight_CD.T + ours.bias_C, dim=1)
    np.testing.assert_allclose(probability_NC, theirs.predict_proba(features_ND), atol=10 * close)


def test_at_the_minimum_the_gradient_vanishes() -> None:
    features_ND, label_N = problem(rows=200, width=6, classes=3)
    found = fit(features_ND, label_N, l2=0.01, start=zero(3, features_ND), max_iterations=500)
    weight_CD, bias_C = found.weight_CD.clone().requires_grad_(), found.bias_C.clone().requires_grad_()
    loss = cross_entropy(features_ND @ weight_CD.T + bias_C, label_N) + 0.005 * (weight_CD**2).sum()
    loss.backward()
    assert weight_CD.grad is not None
    assert bias_C.grad is not None
    assert max(weight_CD.grad.abs().max(), bias_C.grad.abs().max()) < 1e-5


def test_the_start_does_not_matter() -> None:
    features_ND, label_N = problem(rows=200, width=6, classes=3)
    cold = fit(features_ND, label_N, l2=0.01, start=zero(3, features_ND), max_iterations=500)
    other = fit(features_ND, label_N, l2=1.0, start=zero(3, features_ND), max_iterations=500)
    warm = fit(features_ND, label_N, l2=0.01, start=other, max_iterations=500)
    torch.testing.assert_close(cold.weight_CD, warm.weight_CD, rtol=0, atol=1e-4)


def test_the_penalty_is_the_one_with_the_lowest_held_out_loss() -> None:
    features_ND, label_N = problem(rows=120, width=30, classes=3, spread=4.0)  # few rows: too weak a penalty overfits
    grid = (1e-4, 1e-2, 1.0, 1e2)
    choice = choose_l2(features_ND, label_N, fitted=60, num_classes=3, grid=grid, max_iterations=300, bar=BAR)
    held_out = {}
    for l2 in grid:
        theirs = LogisticRegression(C=1 / (l2 * 60), max_iter=2000).fit(features_ND[:60], label_N[:60])
        held_out[l2] = log_loss(label_N[60:], theirs.predict_proba(features_ND[60:]))
    assert choice.l2 == min(held_out, key=lambda l2: held_out[l2])
    assert choice.l2 not in (min(grid), max(grid)), "the problem must have its best penalty inside the grid"
    assert min(grid) not in choice.losses, "weaker ones than the first that is worse are not tried"
    for l2, loss in choice.losses.items():
        assert loss == pytest.approx(held_out[l2], abs=3e-2)  # near enough to choose by


def test_a_class_without_rows_is_only_unlikely() -> None:
    features_ND, label_N = problem(rows=100, width=4, classes=3)
    found = fit(features_ND, label_N, l2=0.01, start=zero(5, features_ND), max_iterations=300)
    logits_NC = features_ND @ found.weight_CD.T + found.bias_C
    assert logits_NC.isfinite().all()
    assert (logits_NC.argmax(dim=1) < 3).all()


def test_it_is_deterministic() -> None:
    features_ND, label_N = problem(rows=200, width=6, classes=3)
    one, two = (
        fit(features_ND.float(), label_N, l2=0.01, start=zero(3, features_ND.float()), max_iterations=50)
        for _ in range(2)
    )
    assert torch.equal(one.weight_CD, two.weight_CD)
    assert torch.equal(one.bias_C, two.bias_C)
