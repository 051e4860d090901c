"""The heads that train side by side: each with parameters and an optimiser of its own, all on the same batches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.optim import AdamW, Optimizer

from pipeline.heads.base import Head, LossOutput, RepresentationBatch
from pipeline.training.config import TrainingConfig


@dataclass(frozen=True, kw_only=True)
class Stepped:
    """What a step gave: the mean loss and parts, detached, on the device."""

    loss: Tensor
    parts: Mapping[str, Tensor]


class Member:
    """One head in training."""

    def __init__(self, head: Head, config: TrainingConfig, device: torch.device) -> None:
        self.head = head.to(device).train()
        self.accumulate, self.device = config.accumulate, device
        self.optimizer = _optimizer(self.head, config)
        self.autocast = config.precision == "bf16" or (config.precision == "auto" and device.type == "cuda")

    def step(self, batch: RepresentationBatch, *, step: int, rate: float) -> Stepped:
        """One step of the optimiser.

        Whatever the loss draws comes from torch's global generator, seeded here by (seed, step): so a run that is
        resumed, or has other members beside it, draws the same.
        """
        seed_generators((self.head.seed << 32) + step, self.device)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.zero_grad(set_to_none=True)
        outputs = [self._backward(part) for part in _parts(batch, self.accumulate)]
        self.optimizer.step()
        names = outputs[0].parts
        return Stepped(
            loss=torch.stack([output.total.detach() for output in outputs]).mean(),
            parts={name: torch.stack([output.parts[name].detach() for output in outputs]).mean() for name in names},
        )

    def _backward(self, part: RepresentationBatch) -> LossOutput:
        with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.autocast):
            output = self.head.loss(part)
        (output.total / self.accumulate).backward()
        return output


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


def _parts(batch: RepresentationBatch, count: int) -> list[RepresentationBatch]:
    """``batch`` cut into ``count`` parts of neighbours."""
    if count == 1:
        return [batch]
    fields = {name: value for name, value in vars(batch).items() if value is not None}
    cut = {name: value.chunk(count) for name, value in fields.items()}
    return [replace(batch, **{name: parts[i] for name, parts in cut.items()}) for i in range(count)]
