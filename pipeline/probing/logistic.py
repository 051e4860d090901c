"""Multinomial logistic regression by L-BFGS, and the choice of its L2 penalty on held-out rows.

Objective: mean cross-entropy + (l2 / 2)·‖W‖², the bias not penalised. In scikit-learn's terms C = 1 / (l2 · N).

Shapes: N rows, D features, C classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, linear

from pipeline.interruption import stop_if_asked
from pipeline.progress import Bar

HISTORY = 10  # pairs that L-BFGS keeps
CHOOSING = 1e-3  # gradient at which a fit is good enough to compare penalties: losses within about 0.01 nats
FITTING = 1e-5  # … and at which the probe that is kept is called converged


@dataclass(frozen=True, kw_only=True)
class Logistic:
    """Weights of the fit: ``logits = features @ weight.T + bias``, in the dtype of the features."""

    weight_CD: Tensor
    bias_C: Tensor

    def loss(self, features_ND: Tensor, label_N: Tensor) -> float:
        """Mean cross-entropy in nats, without the penalty."""
        return float(cross_entropy(linear(features_ND, self.weight_CD, self.bias_C), label_N))


@dataclass(frozen=True, kw_only=True)
class Choice:
    """The penalty with the lowest held-out loss, the losses of those that were tried, and its fit."""

    l2: float
    losses: dict[float, float]
    fit: Logistic


def zero(num_classes: int, like_ND: Tensor) -> Logistic:
    """Where a fit begins: all classes equally likely. A convex problem needs no random start."""
    return Logistic(weight_CD=like_ND.new_zeros(num_classes, like_ND.shape[1]), bias_C=like_ND.new_zeros(num_classes))


def fit(
    features_ND: Tensor, label_N: Tensor, *, l2: float, start: Logistic, max_iterations: int, tolerance: float = FITTING
) -> Logistic:
    """Minimise the objective; deterministic.

    Args:
        features_ND: float32 or float64, of a scale near 1.
        label_N: int64 in [0, C).
        l2: penalty, > 0, so that the minimum is unique.
        start: where to begin; another start changes the time, not the minimum.
        max_iterations: bound on L-BFGS iterations.
        tolerance: largest component of the gradient at which it stops.
    """
    weight_CD = start.weight_CD.clone().requires_grad_()
    bias_C = start.bias_C.clone().requires_grad_()
    optimiser = torch.optim.LBFGS(
        [weight_CD, bias_C],
        max_iter=max_iterations,
        history_size=HISTORY,
        tolerance_grad=tolerance,
        tolerance_change=tolerance * 1e-4,
        line_search_fn="strong_wolfe",
    )

    def closure() -> Tensor:
        stop_if_asked()
        optimiser.zero_grad()
        loss = cross_entropy(linear(features_ND, weight_CD, bias_C), label_N) + 0.5 * l2 * weight_CD.square().sum()
        loss.backward()
        return loss

    optimiser.step(closure)
    return Logistic(weight_CD=weight_CD.detach(), bias_C=bias_C.detach())


def choose_l2(
    features_ND: Tensor,
    label_N: Tensor,
    *,
    fitted: int,
    num_classes: int,
    grid: Sequence[float],
    max_iterations: int,
    bar: Bar,
) -> Choice:
    """Try penalties from strong to weak, each fit beginning at the one before, until the held-out loss rises.

    Args:
        features_ND: rows ``[0, fitted)`` are fitted, the rest is held out.
        label_N: their labels.
        fitted: how many rows are fitted.
        num_classes: C.
        grid: the penalties.
        max_iterations: of each fit.
        bar: one step a penalty.
    """
    held_ND, held_N = features_ND[fitted:], label_N[fitted:]
    start, best, losses = zero(num_classes, features_ND), None, {}
    for l2 in sorted(grid, reverse=True):
        start = fit(
            features_ND[:fitted],
            label_N[:fitted],
            l2=l2,
            start=start,
            max_iterations=max_iterations,
            tolerance=CHOOSING,
        )
        losses[l2] = start.loss(held_ND, held_N)
        bar.advance(1, l2=f"{l2:g}", held_out=f"{losses[l2]:.3f}")
        if best is not None and losses[l2] >= losses[best.l2]:
            break  # the loss along the path has one valley; weaker penalties only cost more time
        best = Choice(l2=l2, losses=losses, fit=start)
    assert best is not None, "the grid has at least one penalty"
    return best
