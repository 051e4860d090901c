"""What an engine is: it takes the batches of a run and gives every member one update for each.

The loop knows nothing else of it. All engines cut a batch into the same parts (:mod:`pipeline.training.cut`), draw the
same for each part, and give and take the same state, so a run may go on with another engine or another number of
processes. They differ in who adds gradients up and where the optimiser's moments lie.

Everything but :meth:`Engine.fail` and :meth:`Engine.check` is called by all processes of the world, in the same order.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import ClassVar

from torch import Tensor

from pipeline.heads.base import RepresentationBatch
from pipeline.training.config import TrainingConfig
from pipeline.training.cut import cut_batch
from pipeline.training.losses import Losses
from pipeline.training.members import Member
from pipeline.world import World


class Engine(ABC):
    """The steps of a run.

    Attributes:
        rows: of a batch, that this process needs.
        losses: of the steps since they were last taken.
        notes: how the members are computed, where that is worth a word; who says one takes it.
        current: whether between two steps the heads hold their weights, in every process.
    """

    current: ClassVar[bool] = False

    def __init__(self, members: Sequence[Member], config: TrainingConfig, world: World) -> None:
        """Share the batches out; the processes tell each other nothing yet.

        Raises:
            UserError: there are more processes than parts that a batch can be cut into.
        """
        self.members, self.config, self.world = members, config, world
        self.cut = cut_batch(
            config.batch_size,
            members[0].head.needs,
            accumulate=config.accumulate,
            processes=world.size,
            exact=members[0].device.type == "cpu",
        )
        self.rows = self.cut.rows(world.rank)
        self.losses = Losses(self.cut.weights, self.cut.mine(world.rank), world)
        self.notes: list[str] = []
        self._error: Exception | None = None

    def fail(self, error: Exception) -> None:
        """This process cannot go on; the next step tells all others, and raises ``error``."""
        self._error = self._error or error

    def check(self) -> None:
        """Raise what :meth:`fail` was told, where no step follows."""
        if self._error:
            raise self._error

    @abstractmethod
    def run(
        self, batches: Iterator[RepresentationBatch], *, step: int, rates: Sequence[float], look: bool = True
    ) -> bool:
        """One step on the next batch, of which ``batches`` gives the own rows; whether somebody asks to stop.

        Each member has its own of ``rates``. The answer is the same in every process. Where a look makes a GPU wait, it
        may be that of an earlier step, except at a step with ``look``.

        Raises:
            Exception: this process has failed (the error is raised in it), or another one (a UserError says why).
            LostError: another process has ended.
        """

    @abstractmethod
    def state(self) -> dict[str, Tensor]:
        """Heads and optimiser as they are now, of which the first process has all.

        ``<member>.head.<name>`` as in the head's state; for each of a member's parameters, by its place among them,
        ``<member>.optimizer.<place>.step``, ``….exp_avg`` and ``….exp_avg_sq`` of AdamW; and where weights are
        averaged ``<member>.average.<place>``. Whole tensors, whoever holds them.
        """

    @abstractmethod
    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Take over what :meth:`state` gave, of whichever engine; before the first step."""

    @abstractmethod
    def averaged(self) -> AbstractContextManager[None]:
        """Heads as they would be saved now: whole, with averaged weights inside, where they are averaged."""

    @abstractmethod
    def finish(self) -> None:
        """Training is over: make the heads what they are to be saved as."""

    def _head_state(self) -> dict[str, Tensor]:
        return {
            f"{place}.head.{name}": value
            for place, member in enumerate(self.members)
            for name, value in member.head.state_dict().items()
        }

    def _restore_heads(self, tensors: Mapping[str, Tensor]) -> None:
        for place, member in enumerate(self.members):
            start = f"{place}.head."
            own = {name.removeprefix(start): value for name, value in tensors.items() if name.startswith(start)}
            member.head.load_state_dict(own)

    def _parts(self, batch: RepresentationBatch) -> list[RepresentationBatch]:
        """The own rows, cut into parts."""
        mine = self.cut.mine(self.world.rank)
        if len(mine) == 1:
            return [batch]
        first = self.rows.start
        fields = {name: value for name, value in vars(batch).items() if value is not None}
        bounds = [(self.cut.bounds[part] - first, self.cut.bounds[part + 1] - first) for part in mine]
        return [
            replace(batch, **{name: _aligned(value[start:stop]) for name, value in fields.items()})
            for start, stop in bounds
        ]


def _aligned(value: Tensor) -> Tensor:
    """The same values where a new tensor's would lie: low bits of matrix products depend on the alignment of memory."""
    return value.clone() if value.device.type == "cpu" and value.data_ptr() % 64 else value
