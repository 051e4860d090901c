"""The losses of the last steps, put together from those of the parts of each batch."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from pipeline.world import World


class Losses:
    """The losses of the steps since they were last taken, of the whole batches.

    S steps, P parts of a batch, M members, K: the loss and the parts of it that the head names.
    """

    def __init__(self, weights: Sequence[float], mine: Sequence[int], world: World) -> None:
        self.weights, self.mine, self.world = weights, list(mine), world
        self.names: list[str] = []  # of the K values; known after the first step
        self.before_SMK: Tensor | None = None  # of steps before the run was interrupted
        self.own: list[Tensor] = []  # of each step (own parts, M, K), on the device

    def take(self) -> Tensor:
        """(S, M, K) float32 on the CPU, the same in every process, all of which call this at the same step."""
        found = [] if self.before_SMK is None else [self.before_SMK]
        if self.own:
            own_SPMK = torch.stack(self.own)
            all_SPMK = own_SPMK.new_zeros(len(self.own), len(self.weights), *own_SPMK.shape[2:])
            all_SPMK[:, self.mine] = own_SPMK
            self.world.add_up(all_SPMK)  # each value is one process's, the others add zeros: nothing is rounded
            all_SPMK = all_SPMK.cpu()
            whole_SMK = torch.zeros_like(all_SPMK[:, 0])
            for part, weight in enumerate(self.weights):  # in this order, whatever the shape
                whole_SMK += weight * all_SPMK[:, part]
            found.append(whole_SMK)
        self.before_SMK, self.own = None, []
        return torch.cat(found)
