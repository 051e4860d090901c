"""The heads that train side by side: each with parameters and settings of its own, all on the same batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import blake2b

import torch
from torch import Tensor

from pipeline.errors import UserError
from pipeline.heads.base import Head, LossOutput, RepresentationBatch
from pipeline.training.config import TrainingConfig


class Member:
    """One head in training.

    Attributes:
        parameters: that change in training; those of two axes and more first, which decay.
        shares: of those of them that follow the batches instead of the optimiser, by their place, what is kept in a
            step (:attr:`Head.running`).
        autocast: whether its loss is computed in bfloat16.
    """

    def __init__(self, head: Head, config: TrainingConfig, device: torch.device) -> None:
        self.head, self.config, self.device = head.to(device).train(), config, device
        trained = [parameter for parameter in self.head.parameters() if parameter.requires_grad]
        self.parameters = sorted(trained, key=lambda parameter: parameter.ndim < 2)
        names = {id(parameter): name for name, parameter in self.head.named_parameters()}
        kept = (head.running.get(names[id(parameter)]) for parameter in self.parameters)
        self.shares = {place: share for place, share in enumerate(kept) if share is not None}
        self.autocast = config.precision == "bf16" or (config.precision == "auto" and device.type == "cuda")

    def loss(self, rows: RepresentationBatch) -> LossOutput:
        """The head's loss on some rows, in the precision that is asked for."""
        with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.autocast):
            return self.head.loss(rows)


def embedder(members: Sequence[Member], *, current: bool) -> Callable[[Tensor], Tensor] | None:
    """What a head with ``mining="head"`` makes of representations (B, D), with the weights it has when it is asked.

    Args:
        members: that are trained on the same batches.
        current: whether their heads hold their weights between two steps.

    Raises:
        UserError: there are several, each of which would pick negatives of its own; or the weights are elsewhere.
    """
    if members[0].head.needs.mining != "head":
        return None
    if len(members) > 1:
        raise UserError(
            f"train_head: {len(members)} heads are trained on the same batches, but this head picks its negatives by "
            "its own weights (mining=head). Train one seed and no sweep at a time, or take mining=representation."
        )
    if not current:
        raise UserError(
            "train_head.engine: this head picks its negatives by its own weights (mining=head), which this engine does "
            "not have at hand. Set train_head.engine=auto."
        )
    head = members[0].head

    def embed(representation_BD: Tensor) -> Tensor:
        head.eval()
        embedding_BE = head(representation_BD).embedding_BE
        head.train()
        return embedding_BE

    return embed


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
