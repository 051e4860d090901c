"""The optimiser: one step of AdamW for all members, from the gradients of a batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.optim import AdamW

from pipeline.training.members import Member
from pipeline.training.sums import Gradients


class Updates:
    """AdamW over all members, each with its own rate and decay; clipping and averaging of weights where asked for.

    Every operation is one on the elements or the norm of one member, so each member comes out as it would alone.
    """

    def __init__(self, members: Sequence[Member]) -> None:
        self.members = members
        self.parameters: list[Tensor] = [parameter for member in members for parameter in member.parameters]
        config, cuda = members[0].config, members[0].device.type == "cuda"
        self.clip_norm, self.average_decay = config.clip_norm, config.ema
        groups = _groups(members)
        for group in groups:
            # On a GPU a rate lies on the device, where a captured step reads it.
            group["lr"] = torch.tensor(config.start_lr, device=members[0].device) if cuda else config.start_lr
        self.optimizer = AdamW(groups, betas=config.betas, fused=True, capturable=cuda)
        self.average: list[Tensor] = [p.detach().clone() for p in self.parameters] if config.ema else []

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
                torch.nn.utils.clip_grad_norm_(member.parameters, self.clip_norm)
        self.optimizer.step()
        for parameter in self.parameters:
            parameter.grad = None
        if self.average:
            with torch.no_grad():
                torch._foreach_lerp_(self.average, self.parameters, 1 - self.average_decay)

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """Heads as they would be saved now: with averaged weights inside, where they are averaged."""
        before = [parameter.detach().clone() for parameter in self.parameters] if self.average else []
        self.finish()
        yield
        with torch.no_grad():
            if before:
                torch._foreach_copy_(self.parameters, before)

    @torch.no_grad()
    def finish(self) -> None:
        """Put the averaged weights into the heads, where they are averaged."""
        if self.average:
            torch._foreach_copy_(self.parameters, self.average)

    def state(self) -> dict[str, Tensor]:
        """What the next step needs: ``<member>.optimizer.<parameter>.<name>`` and ``<member>.average.<parameter>``."""
        found: dict[str, Tensor] = {}
        for place, (name, parameter) in enumerate(self._named()):
            found |= {name.format("optimizer", f".{key}"): v for key, v in self.optimizer.state[parameter].items()}
            if self.average:
                found[name.format("average", "")] = self.average[place]
        return found

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Take over what :meth:`state` gave."""
        for place, (name, parameter) in enumerate(self._named()):
            start = name.format("optimizer", ".")
            self.optimizer.state[parameter] = {
                key.removeprefix(start): value.to(parameter.device, copy=True)
                for key, value in tensors.items()
                if key.startswith(start)
            }
            if self.average:
                self.average[place].copy_(tensors[name.format("average", "")])

    def _named(self) -> list[tuple[str, Tensor]]:
        return [
            (f"{place}.{{}}.{index}{{}}", parameter)
            for place, member in enumerate(self.members)
            for index, parameter in enumerate(member.parameters)
        ]


def _groups(members: Sequence[Member]) -> list[dict[str, object]]:
    """Parameters by rate and decay; weights of two axes and more decay, biases and scalars do not.

    ``member`` of a group is the place of the first member that it has parameters of.
    """
    groups: dict[tuple[float, float], dict[str, object]] = {}
    for place, member in enumerate(members):
        for parameter in member.parameters:
            decay = member.config.weight_decay if parameter.ndim >= 2 else 0.0
            empty: dict[str, object] = {"params": [], "weight_decay": decay, "member": place}
            group = groups.setdefault((member.config.base_lr, decay), empty)
            group["params"].append(parameter)  # type: ignore[attr-defined]
    return list(groups.values())
