"""Several softmax classifiers, trained on the same batches; each knows its penalty and the fold that it never sees.

The objective of each is that of the exact solver: mean cross-entropy + (l2 / 2)·‖W‖², the bias not penalised, on
features that are centred and of scale one. It is minimised by Adam (Kingma and Ba 2015, Algorithm 1, with the paper's
β) whose gradient includes the penalty, so that its resting point is the minimum. (AdamW's decoupled decay would have
another one.) The rate falls linearly to zero, after which the last iterate needs no averaging (Defazio et al. 2023,
*When, why and how much? Adaptive learning rate scheduling by refinement*).

Memory: three matrices of C · D float32 a classifier (weight and two moments), and once for all the gradient and a
block of logits of at most ``LOGITS_BYTES``.

Shapes: B rows of a batch, N rows of it that a classifier sees, D width, C classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

LOGITS_BYTES = 1 << 28  # of the logits of one classifier that are in memory at once
WARM_UP = 0.05  # share of the steps in which the rate rises
EPS = 1e-10  # far below the gradients: at 21,843 classes those of most weights are near 1e-6
MEMORY = 0.95  # of the running mean of a batch's loss


def rate_at(step: int, steps: int) -> float:
    """Share of the peak rate: rises over the first steps, then falls linearly and is above zero at the last one."""
    return min((step + 1) / (WARM_UP * steps), (steps - step) / (steps * (1 - WARM_UP)), 1.0)


class Scratch:
    """What classifiers that are stepped one after the other need once."""

    def __init__(self, classes: int, width: int, device: torch.device, logits_bytes: int = LOGITS_BYTES) -> None:
        self.weight_CD = torch.empty(classes, width, device=device)
        self.bias_C = torch.empty(classes, device=device)
        self.rows = max(1, logits_bytes // (4 * classes))
        self._logits = torch.empty(0, device=device)

    def logits(self, rows: int) -> Tensor:
        """Room for (rows, C)."""
        classes = len(self.bias_C)
        if len(self._logits) < rows * classes:
            self._logits = torch.empty(rows * classes, device=self.bias_C.device)
        return self._logits[: rows * classes].view(rows, classes)


class SoftmaxClassifier:
    """One classifier in training; begins at zero, where all classes are equally likely."""

    def __init__(self, *, leave_out: int | None, l2: float, like: Scratch) -> None:
        self.leave_out, self.l2 = leave_out, l2
        self.weight_CD = torch.zeros_like(like.weight_CD).requires_grad_()
        self.bias_C = torch.zeros_like(like.bias_C).requires_grad_()
        self.loss = torch.full((), torch.nan, device=like.bias_C.device)  # running mean over the batches
        groups: list[dict[str, Any]] = [{"params": [self.weight_CD], "weight_decay": l2}, {"params": [self.bias_C]}]
        self.optimizer = torch.optim.Adam(groups, betas=(0.9, 0.999), eps=EPS, fused=True)

    def step(
        self, features_BD: Tensor, label_B: Tensor, fold_B: NDArray[np.int8], rate: float, scratch: Scratch
    ) -> None:
        """One step on the rows outside the fold that is left out; none if there are no such rows."""
        if self.leave_out is not None:
            seen = torch.from_numpy(np.flatnonzero(fold_B != self.leave_out)).to(label_B.device)
            features_BD, label_B = features_BD[seen], label_B[seen]
        if not len(label_B):
            return
        loss = gradient(features_BD, label_B, self.weight_CD.detach(), self.bias_C.detach(), scratch)
        self.loss = torch.where(self.loss.isnan(), loss, MEMORY * self.loss + (1 - MEMORY) * loss)
        self.weight_CD.grad, self.bias_C.grad = scratch.weight_CD, scratch.bias_C
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.step()
        self.weight_CD.grad = self.bias_C.grad = None

    def state(self) -> dict[str, Tensor]:
        """Everything that a step changes, by name."""
        found = {"weight": self.weight_CD.detach(), "bias": self.bias_C.detach(), "loss": self.loss}
        for place, of_one in self.optimizer.state_dict()["state"].items():
            found |= {f"{place}.{name}": value for name, value in of_one.items()}
        return found

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Become what :meth:`state` was taken of."""
        with torch.no_grad():
            self.weight_CD.copy_(state["weight"])
            self.bias_C.copy_(state["bias"])
        self.loss = state["loss"].to(self.loss.device)
        of_adam: dict[int, dict[str, Tensor]] = {}
        for name, value in state.items():
            place, _, what = name.partition(".")
            if what:
                of_adam.setdefault(int(place), {})[what] = value
        self.optimizer.load_state_dict({"state": of_adam, "param_groups": self.optimizer.state_dict()["param_groups"]})


def gradient(features_ND: Tensor, label_N: Tensor, weight_CD: Tensor, bias_C: Tensor, scratch: Scratch) -> Tensor:
    """Mean cross-entropy in nats, a scalar; leaves its gradient in ``scratch``.

    By hand and in place, so that one block of logits is all that is ever made: ∂/∂logits = (softmax − one-hot) / N.
    """
    scratch.weight_CD.zero_()
    scratch.bias_C.zero_()
    total = torch.zeros((), device=bias_C.device)
    for x_ND, target_N in zip(features_ND.split(scratch.rows), label_N.split(scratch.rows), strict=True):
        logits_NC = scratch.logits(len(x_ND))
        total += _cross_entropy(x_ND, target_N, weight_CD, bias_C, logits_NC).sum()
        logits_NC /= logits_NC.sum(dim=1, keepdim=True) * len(label_N)
        logits_NC.scatter_add_(1, target_N[:, None], logits_NC.new_full((len(x_ND), 1), -1 / len(label_N)))
        scratch.weight_CD.addmm_(logits_NC.T, x_ND)
        scratch.bias_C += logits_NC.sum(dim=0)
    return total / len(label_N)


def mean_loss(features_ND: Tensor, label_N: Tensor, weight_CD: Tensor, bias_C: Tensor, scratch: Scratch) -> float:
    """Mean cross-entropy in nats, without a gradient."""
    parts = [
        _cross_entropy(x_ND, target_N, weight_CD, bias_C, scratch.logits(len(x_ND)))
        for x_ND, target_N in zip(features_ND.split(scratch.rows), label_N.split(scratch.rows), strict=True)
    ]
    return float(torch.cat(parts).double().mean())


def _cross_entropy(x_ND: Tensor, label_N: Tensor, weight_CD: Tensor, bias_C: Tensor, logits_NC: Tensor) -> Tensor:
    """(N,) losses; ``logits_NC`` is overwritten with the exponentials, the largest of each row being one."""
    torch.addmm(bias_C, x_ND, weight_CD.T, out=logits_NC)
    logits_NC -= logits_NC.amax(dim=1, keepdim=True)
    own_N = logits_NC.gather(1, label_N[:, None])[:, 0]
    logits_NC.exp_()
    return logits_NC.sum(dim=1).log() - own_N
