"""The gradients of members on the same rows: one after the other, or all in one batch of computation.

One after the other, a member's gradient has the bits that it has alone. In one batch, the members' parameters are
stacked and ``torch.func.vmap`` runs the loss over the stack: a GPU then does in one product what it would do in many
small ones. The results differ by rounding. What ``vmap`` cannot do (a loss that draws, or that looks at a value to
decide) is found out on the first rows, as is a head that keeps something of its own outside its parameters and
buffers; such heads are computed one after the other.

Shape suffixes: M members, K values: the loss and the parts of it that the head names.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from pipeline.heads.base import Head, RepresentationBatch
from pipeline.training.members import Member, draw_seed, seed_generators
from pipeline.training.sums import Gradients

TOLERANCE = {False: 1e-2, True: 1e-1}  # of a gradient in one batch against that alone, by norm; with bfloat16 or not


@dataclass(frozen=True, kw_only=True)
class Computed:
    """What a team found on some rows.

    Attributes:
        gradients: of ``weight`` times the loss, for each parameter of each member, a member after the other.
        names: of the K values.
        values_MK: float32, the loss and its parts.
    """

    gradients: Gradients
    names: list[str]
    values_MK: Tensor


class Team(Protocol):
    """Members that are computed together."""

    def compute(self, rows: RepresentationBatch, *, step: int, part: int, weight: float) -> Computed:
        """The gradients on ``rows``, which are one part of the batch of a step.

        A parameter that the loss does not reach has a gradient of zeros.
        """


class Alone:
    """One member."""

    def __init__(self, member: Member) -> None:
        self.member, self.draws = member, True

    def compute(self, rows: RepresentationBatch, *, step: int, part: int, weight: float) -> Computed:
        """As :class:`Team` says.

        Whatever the loss draws comes from torch's global generator, seeded here by (seed, step, part): so it is the
        same in a run that is resumed, has other members beside it, or is shared by several processes. (Not where
        :attr:`draws` was set to False, because it is known to draw nothing: a recorded step cannot seed.)
        """
        member = self.member
        if self.draws:
            seed_generators(draw_seed(member.head.seed, step, part), member.device)
        output = member.loss(rows)
        values = [output.total, *output.parts.values()]
        return Computed(
            gradients=_gradients(output.total * weight, member.parameters),
            names=["loss", *output.parts],
            values_MK=torch.stack([value.detach().float() for value in values])[None],
        )


class Stacked:
    """Members of the same shape, in one batch of computation."""

    def __init__(self, members: Sequence[Member]) -> None:
        """Stack copies of the members' parameters and buffers; :meth:`adopt` makes the members use them.

        Raises:
            RuntimeError: the shapes differ.
        """
        # A copy, because functional_call leaves its tensors in a module that a head holds under two names.
        self.members, self.loss = members, deepcopy(_Loss(members[0].head))
        heads = [_Loss(member.head) for member in members]
        parameters, buffers = (
            [dict(getattr(h, kind)()) for h in heads] for kind in ("named_parameters", "named_buffers")
        )
        self.parameters = {
            name: torch.stack([own[name].detach() for own in parameters]).requires_grad_(value.requires_grad)
            for name, value in parameters[0].items()
        }
        self.buffers = {name: torch.stack([own[name] for own in buffers]) for name in buffers[0]}
        names = {id(value): name for name, value in parameters[0].items()}
        self.trained = [self.parameters[names[id(value)]] for value in members[0].parameters]

    def adopt(self) -> None:
        """From now on the members' parameters are parts of the stack: who changes one changes the other."""
        for place, member in enumerate(self.members):
            for name, value in _Loss(member.head).named_parameters():
                value.data = self.parameters[name].detach()[place]

    def compute(self, rows: RepresentationBatch, *, step: int, part: int, weight: float) -> Computed:
        """As :class:`Team` says; a loss that draws raises a RuntimeError."""
        names: list[str] = []

        def loss(parameters: dict[str, Tensor], buffers: dict[str, Tensor]) -> tuple[Tensor, ...]:
            total, parts = functional_call(self.loss, (parameters, buffers), (rows,))
            names[:] = ["loss", *parts]
            return (total, *parts.values())

        first = self.members[0]
        with torch.autocast(first.device.type, dtype=torch.bfloat16, enabled=first.autocast):
            total_M, *parts = vmap(loss, randomness="error")(self.parameters, self.buffers)
        gradients = _gradients((total_M * weight).sum(), self.trained)
        return Computed(
            gradients=[gradient[place] for place in range(len(self.members)) for gradient in gradients],
            names=names,
            values_MK=torch.stack([value.detach().float() for value in (total_M, *parts)], dim=1),
        )


class _Loss(nn.Module):
    """A head's loss as a module's forward, which ``functional_call`` wants."""

    def __init__(self, head: Head) -> None:
        super().__init__()
        self.head = head

    def forward(self, rows: RepresentationBatch) -> tuple[Tensor, dict[str, Tensor]]:
        output = self.head.loss(rows)
        return output.total, dict(output.parts)


def _gradients(loss: Tensor, parameters: Sequence[Tensor]) -> Gradients:
    """Each in memory of its own and laid out like its parameter, which ``torch.autograd.grad`` does not promise."""
    for parameter in parameters:
        parameter.grad = None
    loss.backward()
    found = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
    for parameter in parameters:
        parameter.grad = None
    return found


def team_up(
    members: Sequence[Member], rows: RepresentationBatch, *, step: int, part: int
) -> tuple[Sequence[Team], str]:
    """All members in one batch of computation if that gives what they give alone, else each by itself.

    Args:
        members: all of one head, of different seeds or rates.
        rows, step, part: something to try it on.

    Returns:
        The teams, in the order of the members, and why it is not one ("" if it is).
    """
    alone = [Alone(member) for member in members]
    try:
        stacked = Stacked(members)
        ours = stacked.compute(rows, step=step, part=part, weight=1.0)
    except Exception as error:  # whatever a head does that vmap cannot
        lines = str(error).strip().splitlines() or [type(error).__name__]
        return alone, f"its loss cannot be computed for several heads at once ({lines[0]})"
    size = len(members[0].parameters)
    for place, team in enumerate(alone):
        theirs = team.compute(rows, step=step, part=part, weight=1.0)
        found = ours.gradients[place * size : (place + 1) * size]
        if not _close(found, theirs.gradients, TOLERANCE[members[0].autocast]):
            return alone, "computed for several heads at once, the gradient of one is not what it is alone"
    stacked.adopt()
    return [stacked], ""


def _close(found: Gradients, wanted: Gradients, tolerance: float) -> bool:
    difference, norm = (
        torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(value.double()) for value in values]))
        for values in ([a.double() - b for a, b in zip(found, wanted, strict=True)], wanted)
    )
    return bool(difference <= tolerance * norm)
