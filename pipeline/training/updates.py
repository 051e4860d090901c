"""The optimiser: one step of AdamW for all members, from the gradients of a batch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor
from torch.optim import AdamW

from pipeline.training.average import Average
from pipeline.training.members import Member
from pipeline.training.sums import Gradients

MOMENTS = ("step", "exp_avg", "exp_avg_sq")  # what AdamW keeps of a parameter


class Updates:
    """AdamW over all members, each with its own rate and decay; clipping and averaging of weights where asked for.

    Every operation is one on the elements or the norm of one member, so each member comes out as it would alone.
    """

    def __init__(self, members: Sequence[Member]) -> None:
        self.members = members
        self.parameters: list[Tensor] = [parameter for member in members for parameter in member.parameters]
        self.running = [
            (member.parameters[place], share) for member in members for place, share in member.shares.items()
        ]
        self.clip_norm = members[0].config.clip_norm
        self.optimizer = make_optimizer(members, capturable=members[0].device.type == "cuda")
        self.average = Average(optimised(members), members[0].config.ema)

    def set_rates(self, rates: Sequence[float]) -> None:
        """The learning rate of each member from now on."""
        for group in self.optimizer.param_groups:
            rate = rates[group["member"]]
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(rate)  # the number travels with the kernel: nothing waits
            else:
                group["lr"] = rate

    def run(self, gradients: Gradients) -> None:
        """One step; ``gradients`` has those of each parameter of each member, a member after the other."""
        for parameter, gradient in zip(self.parameters, gradients, strict=True):
            parameter.grad = gradient
        if self.clip_norm is not None:
            for member in self.members:
                torch.nn.utils.clip_grad_norm_(optimised([member]), self.clip_norm)
        self.optimizer.step()
        follow(self.running)
        for parameter in self.parameters:
            parameter.grad = None
        self.average.follow()

    def state(self) -> dict[str, Tensor]:
        """What the next step needs: ``<member>.optimizer.<parameter>.<name>`` and ``<member>.average.<parameter>``."""
        found: dict[str, Tensor] = {}
        for name, parameter in zip(optimised_names(self.members, "optimizer"), optimised(self.members), strict=True):
            found |= {f"{name}.{key}": value for key, value in self.optimizer.state[parameter].items()}
        return {**found, **self.average.state(optimised_names(self.members, "average"))}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Take over what :meth:`state` gave."""
        for name, parameter in zip(optimised_names(self.members, "optimizer"), optimised(self.members), strict=True):
            self.optimizer.state[parameter] = {
                key: tensors[f"{name}.{key}"].to(parameter.device, copy=True) for key in MOMENTS
            }
        self.average.restore(tensors, optimised_names(self.members, "average"))


@torch.no_grad()
def follow(running: Iterable[tuple[Tensor, float]]) -> None:
    """p ← m·p + gradient, for parameters that an optimiser leaves alone and their m, as heads' ``running`` has it."""
    for parameter, share in running:
        assert parameter.grad is not None
        parameter.mul_(share).add_(parameter.grad)


def optimised(members: Sequence[Member]) -> list[Tensor]:
    """The parameters that the optimiser changes, of a member after the other."""
    return [
        parameter
        for member in members
        for place, parameter in enumerate(member.parameters)
        if place not in member.shares
    ]


def optimised_names(members: Sequence[Member], what: str) -> list[str]:
    """``<member>.<what>.<place>`` for each of :func:`optimised`."""
    return [
        f"{number}.{what}.{place}"
        for number, member in enumerate(members)
        for place in range(len(member.parameters))
        if place not in member.shares
    ]


def make_optimizer(members: Sequence[Member], *, capturable: bool) -> AdamW:
    """AdamW as the paper has it, for each of ``members`` with its own rate and decay.

    Args:
        members: whose parameters are trained.
        capturable: rates and counts lie on the GPU, where a recorded step reads them.
    """
    config, groups = members[0].config, _groups(members)
    for group in groups:
        group["lr"] = torch.tensor(config.start_lr, device=members[0].device) if capturable else config.start_lr
    return AdamW(groups, betas=config.betas, fused=True, capturable=capturable)


def _groups(members: Sequence[Member]) -> list[dict[str, object]]:
    """Parameters by rate and decay; weights of two axes and more decay, biases and scalars do not.

    ``member`` of a group is the place of the first member that it has parameters of.
    """
    groups: dict[tuple[float, float], dict[str, object]] = {}
    for place, member in enumerate(members):
        for parameter in optimised([member]):
            decay = member.config.weight_decay if parameter.ndim >= 2 else 0.0
            empty: dict[str, object] = {"params": [], "weight_decay": decay, "member": place}
            group = groups.setdefault((member.config.base_lr, decay), empty)
            group["params"].append(parameter)  # type: ignore[attr-defined]
    return list(groups.values())
