"""Data parallel over the processes of torch.distributed: gradients are added once a step, for all members together.

Our own sums (:mod:`pipeline.training.sums`), not torch's ``DistributedDataParallel``. On a CPU they give the bits of
one process; on GPUs one all-reduce a step takes all members and the flags that end a run. What torch's class would add
is that gradients of the last layers travel while those of the first are computed: for a head of a few megabytes that is
little, and its buckets would be added in another order in every number of processes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager

import torch
from torch import Tensor

from pipeline.heads.base import RepresentationBatch
from pipeline.interruption import stop_asked
from pipeline.training.config import TrainingConfig
from pipeline.training.engines.base import Engine
from pipeline.training.members import Member
from pipeline.training.sums import Gradients, Sums
from pipeline.training.teams import Alone, Team, team_up
from pipeline.training.updates import Updates
from pipeline.world import World

LOOK_EVERY = 10  # steps; several processes on GPUs look at each other's flags so often, since a look makes a GPU wait


class Ddp(Engine):
    """Each process computes its parts of a batch and has all weights and moments."""

    current = True

    def __init__(self, members: Sequence[Member], config: TrainingConfig, world: World) -> None:
        super().__init__(members, config, world)
        self.updates = Updates(members)
        self.sums = Sums(self.cut, world, self.updates.parameters)
        self._teams: Sequence[Team] = [Alone(member) for member in members]
        self._try = len(members) > 1 and (
            config.batched == "on" or (config.batched == "auto" and members[0].device.type == "cuda")
        )
        self._raised: list[Tensor | float] = [0.0, 0.0]

    def run(
        self, batches: Iterator[RepresentationBatch], *, step: int, rates: Sequence[float], look: bool = True
    ) -> bool:
        """As :class:`Engine` says; several GPUs look at a step with ``look``, and at every tenth."""
        self.updates.set_rates(rates)
        held = self.sums.nothing() if self._error else self._compute(batches, step)
        gradients, raised = self.sums.between(held, stop=stop_asked(), failed=self._error is not None)
        self._raised = [self._raised[0] + raised.stop, self._raised[1] + raised.failed]
        stop = False
        if look or self.cut.exact or self.world.size == 1 or step % LOOK_EVERY == 0:
            stop, failed = (bool(count > 0) for count in self._raised)
            if failed:
                self.world.agree(self._error)
        self.updates.run(gradients)
        return stop

    def state(self) -> dict[str, Tensor]:
        """As :class:`Engine` says; every process has all."""
        return {**self._head_state(), **self.updates.state()}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """As :class:`Engine` says."""
        self._restore_heads(tensors)
        self.updates.restore(tensors)

    def averaged(self) -> AbstractContextManager[None]:
        """As :class:`Engine` says."""
        return self.updates.average.in_place()

    def finish(self) -> None:
        """As :class:`Engine` says."""
        self.updates.average.finish()

    def _compute(self, batches: Iterator[RepresentationBatch], step: int) -> list[dict[int, Gradients]]:
        try:
            parts = self._parts(next(batches))
            if self._try:
                self._team_up(parts[0], step)
            held, losses_PMK = self._held(parts, step)
            self.losses.own.append(losses_PMK)
        except Exception as error:
            self.fail(error)
            return self.sums.nothing()
        return held

    def _held(self, parts: Sequence[RepresentationBatch], step: int) -> tuple[list[dict[int, Gradients]], Tensor]:
        """The gradients of the own parts, as far as they can be added here, and the losses (own parts, M, K)."""
        values: list[list[Tensor]] = [[] for _ in self._teams]
        held = [
            self.sums.within(self._terms(team, parts, step, into))
            for team, into in zip(self._teams, values, strict=True)
        ]
        return held, torch.stack([torch.cat(part) for part in zip(*values, strict=True)])

    def _team_up(self, rows: RepresentationBatch, step: int) -> None:
        self._try = False
        self._teams, reason = team_up(self.members, rows, step=step, part=self.cut.mine(self.world.rank)[0])
        heads = f"{len(self.members)} heads"
        how = f"are computed one after the other: {reason}" if reason else "in one computation"
        self.notes.append(f"{heads} {how}")

    def _terms(
        self, team: Team, parts: Sequence[RepresentationBatch], step: int, into: list[Tensor]
    ) -> Iterator[Gradients]:
        """The gradients of the parts, one after the other; nothing of them is kept here once they are given away."""
        for part, rows in zip(self.cut.mine(self.world.rank), parts, strict=True):
            found = team.compute(rows, step=step, part=part, weight=self.cut.weights[part])
            self.losses.names = found.names
            into.append(found.values_MK)
            gradients = [found.gradients]
            del found
            yield gradients.pop()
