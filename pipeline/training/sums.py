"""Gradients of the parts of a batch → gradients of the batch: added within a process, then between processes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pipeline.training.cut import Cut, additions
from pipeline.world import World

Gradients = list[Tensor]  # of the parameters of one or more members, a member after the other


@dataclass(frozen=True, kw_only=True)
class Raised:
    """How many processes raised which flag."""

    stop: float | Tensor
    failed: float | Tensor


class Sums:
    """Adds up what the processes of a world have, in the order that the cut says."""

    def __init__(self, cut: Cut, world: World, parameters: Sequence[Tensor]) -> None:
        """Get ready.

        Args:
            cut: of the batch.
            world: the processes that share it.
            parameters: of all members; the gradients have their shapes.
        """
        self.cut, self.world, self.parameters = cut, world, parameters
        self.order = additions(len(cut.owners))
        self.mine = cut.mine(world.rank)
        inside = [(left, right) for left, right, last in self.order if left >= self.mine[0] and last <= self.mine[-1]]
        self.inside = set(inside)
        self.left = [part for part in self.mine if part not in {right for _, right in inside}]  # sums that remain

    def within(self, terms: Iterable[Gradients]) -> dict[int, Gradients]:
        """Add the gradients of this process's parts, each as soon as it can be; what remains, by first part."""
        held: dict[int, Gradients] = {}
        coming = iter(terms)
        for part in self.mine:
            held[part] = next(coming)
            for left, right, last in self.order:
                if last == part and (left, right) in self.inside:
                    torch._foreach_add_(held[left], held.pop(right))
        return held

    def nothing(self) -> list[dict[int, Gradients]]:
        """What a process has that could not compute its parts: zeros."""
        return [{part: [torch.zeros_like(parameter) for parameter in self.parameters] for part in self.left}]

    def between(self, held: Sequence[Mapping[int, Gradients]], *, stop: bool, failed: bool) -> tuple[Gradients, Raised]:
        """The gradients of the whole batch, the same bits in every process, and the flags raised.

        Args:
            held: what :meth:`within` gave, for each team of members.
            stop, failed: this process's flags, which travel with the gradients.
        """
        if self.world.size == 1:
            return [gradient for team in held for gradient in team[0]], Raised(stop=float(stop), failed=float(failed))
        flags = [float(stop), float(failed)]
        sums: dict[int, Tensor] = {}
        for part in self.left:
            values = [gradient.flatten() for team in held for gradient in team[part]]
            sums[part] = torch.cat([*values, values[0].new_tensor(flags)])
            flags = [0.0, 0.0]
        total = self._exactly(sums) if self.cut.exact else self._at_once(sums)
        return self._apart(total), Raised(stop=total[-2], failed=total[-1])

    def _exactly(self, sums: dict[int, Tensor]) -> Tensor:
        """In the order of the additions: who has the right term sends it to who has the left one."""
        rank, owners = self.world.rank, self.cut.owners
        like = next(iter(sums.values()))
        for left, right, _ in self.order:
            if (left, right) in self.inside or rank not in (owners[left], owners[right]):
                continue
            if owners[left] == owners[right]:
                sums[left] += sums.pop(right)
            elif rank == owners[right]:
                self.world.send(sums.pop(right), owners[left])
            else:
                term = torch.empty_like(like)
                self.world.receive(term, owners[right])
                sums[left] += term
        total = sums.get(0, like)
        self.world.hand_out(total)
        return total

    def _at_once(self, sums: dict[int, Tensor]) -> Tensor:
        """In whatever order is quickest."""
        total = torch.stack(list(sums.values())).sum(0) if len(sums) > 1 else next(iter(sums.values()))
        self.world.add_up(total)
        return total

    def _apart(self, total: Tensor) -> Gradients:
        gradients, start = [], 0
        for parameter in self.parameters:
            part = total[start : start + parameter.numel()]
            gradients.append(part.view(parameter.shape).to(parameter.dtype))
            start += parameter.numel()
        return gradients
