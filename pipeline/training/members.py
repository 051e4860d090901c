"""The heads that train side by side: each with parameters and an optimiser of its own, all on the same batches."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

import torch
from torch import Tensor
from torch.optim import AdamW, Optimizer

from pipeline.heads.base import Head, LossOutput, RepresentationBatch
from pipeline.training.config import TrainingConfig


class Member:
    """One head in training."""

    def __init__(self, head: Head, config: TrainingConfig, device: torch.device) -> None:
        self.head = head.to(device).train()
        self.device = device
        self.parameters = [parameter for parameter in self.head.parameters() if parameter.requires_grad]
        self.optimizer = _optimizer(self.head, config)
        self.autocast = config.precision == "bf16" or (config.precision == "auto" and device.type == "cuda")

    def gradient(
        self, rows: RepresentationBatch, *, step: int, part: int, weight: float
    ) -> tuple[list[Tensor], LossOutput]:
        """The gradient of ``weight`` times the loss of ``rows``, for each parameter, and what the loss was.

        Whatever the loss draws comes from torch's global generator, seeded here by (seed, step, part): so it is the
        same in a run that is resumed, has other members beside it, or is shared by several processes. A parameter that
        the loss does not reach has a gradient of zeros.
        """
        seed_generators(draw_seed(self.head.seed, step, part), self.device)
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.autocast):
            output = self.head.loss(rows)
        (output.total * weight).backward()
        found = [torch.zeros_like(p) if p.grad is None else p.grad for p in self.parameters]
        return found, output

    def update(self, gradient: Sequence[Tensor], *, rate: float) -> None:
        """One step of the optimiser."""
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        for parameter, value in zip(self.parameters, gradient, strict=True):
            parameter.grad = value
        self.optimizer.step()


def draw_seed(*what: int) -> int:
    """A seed for what is drawn at one place: a hash, because torch looks at the lower 32 bits alone."""
    return int.from_bytes(blake2b(repr(what).encode(), digest_size=4).digest(), "little")


def seed_generators(seed: int, device: torch.device) -> None:
    """Seed the global generators of the CPU and of ``device``.

    ``torch.manual_seed`` would keep a stack trace of each call for devices not in use, which costs more than a step.
    """
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        with torch.cuda.device(device):
            torch.cuda.manual_seed(seed)


def _optimizer(head: Head, config: TrainingConfig) -> Optimizer:
    """AdamW; weights of two axes and more decay, biases and scalars do not."""
    weights = [p for p in head.parameters() if p.ndim >= 2]
    others = [p for p in head.parameters() if p.ndim < 2]
    groups = [
        {"params": weights, "weight_decay": config.weight_decay},
        {"params": others, "weight_decay": 0.0},
    ]
    return AdamW([group for group in groups if group["params"]], lr=config.start_lr, betas=config.betas, fused=True)
