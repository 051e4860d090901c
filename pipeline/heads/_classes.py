"""Class probabilities over many classes, some classes at a time: what the heads with a classifier share.

Where M classifiers, or S samples of one, score B rows over C = 21,843 classes, all logits together would be gigabytes.
Here no tensor of logits has more than ``AT_ONCE`` elements, neither for the loss, nor for its gradient, nor for scores.

Shape suffixes: B rows, D width, C classes, M classifiers or samples, N = rows of a loss (M·B).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import reduce
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import embedding

from pipeline.errors import UserError
from pipeline.heads.base import LinearClassifier, Summary

AT_ONCE = 1 << 24  # logits that are held together: 64 MiB in float32


def require_classes(head: str, summary: Summary) -> int:
    """The number of classes of a store.

    Raises:
        UserError: it knows none.
    """
    if not summary.num_classes:
        raise UserError(f"head {head}: learns from labels, but the store knows no classes.")
    return summary.num_classes


def require_classifier(head: str, summary: Summary) -> LinearClassifier:
    """The frozen classifier over the representation.

    Raises:
        UserError: there is none.
    """
    if summary.classifier is None:
        raise UserError(
            f"head {head}: there is no classifier over this representation. "
            "Take a backbone with a class head, or set train_head.task_loss=probe (and run `submit stage=probe`)."
        )
    return summary.classifier


def log_probability(x_ND: Tensor, weight_CD: Tensor, bias_C: Tensor, label_N: Tensor) -> Tensor:
    """log softmax(Wx + b) at the label, (N,), float32; 0 where the label is −1.

    Under autocast the products are in its type, as a linear layer's are.
    """
    device = x_ND.device.type
    if torch.is_autocast_enabled(device):
        x_ND, weight_CD = (value.to(torch.get_autocast_dtype(device)) for value in (x_ND, weight_CD))
    known_N = label_N >= 0
    place_N = label_N.clamp_min(0)
    own_N = (x_ND.float() * embedding(place_N, weight_CD).float()).sum(-1) + bias_C[place_N]
    found: Tensor = LogPartition.apply(x_ND, weight_CD, bias_C)
    return torch.where(known_N, own_N - found, 0.0)


class LogPartition(torch.autograd.Function):
    """log Σ_c exp(w_c·x + b_c), (N,), of ``x`` (N, D), ``weight`` (C, D) and ``bias`` (C,).

    The logits are made again for the gradient, so that nothing of the size (N, C) is kept.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(x_ND: Tensor, weight_CD: Tensor, bias_C: Tensor) -> Tensor:
        """The value."""
        return _added(torch.logsumexp(_logits(x_ND, *some), dim=-1) for some in _some(x_ND, weight_CD, bias_C))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor], output: Tensor) -> None:
        """Keep what goes in and what came out."""
        ctx.save_for_backward(*inputs, output)

    @staticmethod
    def backward(ctx: Any, gradient_N: Tensor) -> tuple[Tensor | None, Tensor, Tensor]:
        """The gradient of the sum is the softmax."""
        x_ND, weight_CD, bias_C, log_partition_N = ctx.saved_tensors
        to_x_ND: Tensor | None = None
        to_weight, to_bias = [], []
        for some in _some(x_ND, weight_CD, bias_C):
            share_Nc = (_logits(x_ND, *some) - log_partition_N[:, None]).exp() * gradient_N[:, None]
            to_bias.append(share_Nc.sum(0))
            share_Nc = share_Nc.to(x_ND.dtype)
            to_weight.append(share_Nc.T @ x_ND)
            if ctx.needs_input_grad[0]:
                term_ND = share_Nc @ some[0]
                to_x_ND = term_ND if to_x_ND is None else to_x_ND + term_ND
        return to_x_ND, torch.cat(to_weight), torch.cat(to_bias)


def _some(x_ND: Tensor, weight_CD: Tensor, bias_C: Tensor) -> list[tuple[Tensor, Tensor]]:
    count = max(1, AT_ONCE // len(x_ND))
    return list(zip(weight_CD.split(count), bias_C.split(count), strict=True))


def _added(logarithms: Iterable[Tensor]) -> Tensor:
    return reduce(torch.logaddexp, logarithms)


def _logits(x_ND: Tensor, weight_cD: Tensor, bias_c: Tensor) -> Tensor:
    return (x_ND @ weight_cD.T).float() + bias_c


def pooled_entropies(
    logits_of: Callable[[slice], Tensor], *, classes: int, members: int, rows: int
) -> tuple[Tensor, Tensor]:
    """Of M distributions over classes: the entropy of their mean, and their Jensen–Shannon divergence, (B,), in nats.

    H(mean_m p_m), and H(mean_m p_m) − mean_m H(p_m), which lies in [0, log M]. Logits are made twice: once for the
    partition functions, once for the sums.

    Args:
        logits_of: (M, B, c) for a slice of c classes, called with one slice after the other.
        classes: C.
        members: M.
        rows: B.
    """
    count = max(1, AT_ONCE // (members * rows))
    slices = [slice(start, min(start + count, classes)) for start in range(0, classes, count)]
    log_partition_MB1 = _added(torch.logsumexp(logits_of(some).float(), dim=-1) for some in slices)[..., None]
    within_MB = torch.zeros_like(log_partition_MB1[..., 0])
    entropy_B = torch.zeros_like(within_MB[0])
    for some in slices:
        log_p_MBc = logits_of(some).float() - log_partition_MB1
        log_mean_Bc = torch.logsumexp(log_p_MBc, dim=0) - math.log(members)
        entropy_B = entropy_B - (log_mean_Bc.exp() * log_mean_Bc).sum(-1)
        within_MB = within_MB - (log_p_MBc.exp() * log_p_MBc).sum(-1)
    return entropy_B, (entropy_B - within_MB.mean(0)).clamp_min(0)
