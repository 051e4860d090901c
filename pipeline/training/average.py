"""A running mean of weights, which is what is saved and validated where one is kept."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor


class Average:
    """The running mean of some parameters; none is kept where its share is 0."""

    def __init__(self, parameters: Sequence[Tensor], share: float) -> None:
        """Begin with the weights as they are.

        Args:
            parameters: that are averaged.
            share: that the mean keeps in a step, 0 ≤ share < 1.
        """
        self.parameters, self.share = list(parameters), share
        self.values: list[Tensor] = [p.detach().clone() for p in self.parameters] if share else []

    @torch.no_grad()
    def follow(self) -> None:
        """Take the weights after a step in."""
        if self.values:
            torch._foreach_lerp_(self.values, self.parameters, 1 - self.share)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Inside, the parameters are the mean."""
        before = [parameter.detach().clone() for parameter in self.parameters] if self.values else []
        self.finish()
        yield
        with torch.no_grad():
            if before:
                torch._foreach_copy_(self.parameters, before)

    @torch.no_grad()
    def finish(self) -> None:
        """Make the parameters the mean, for good."""
        if self.values:
            torch._foreach_copy_(self.parameters, self.values)

    def state(self, names: Sequence[str]) -> dict[str, Tensor]:
        """The mean of each parameter, by the names that are given for all; none where none is kept."""
        return dict(zip(names, self.values, strict=True)) if self.values else {}

    def restore(self, tensors: Mapping[str, Tensor], names: Sequence[str]) -> None:
        """Take over what :meth:`state` gave."""
        for name, value in zip(names, self.values, strict=False):
            value.copy_(tensors[name].reshape(value.shape))
