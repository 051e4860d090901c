"""One step of all members on a global batch, of which each process computes its own parts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from pipeline.heads.base import RepresentationBatch
from pipeline.interruption import stop_asked
from pipeline.training.config import TrainingConfig
from pipeline.training.cut import cut_batch
from pipeline.training.members import Member
from pipeline.training.recorded import Record, Recorded, cuda_graph, draws
from pipeline.training.sums import Gradients, Sums
from pipeline.training.teams import Alone, Computed, Team, team_up
from pipeline.training.updates import Updates
from pipeline.world import World

WARM = 3  # steps that are done plainly before one is recorded: they make what is made once
LOOK_EVERY = 10  # steps; several processes on GPUs look at each other's flags so often, since a look makes a GPU wait


class Steps:
    """The steps of a run."""

    def __init__(self, members: Sequence[Member], config: TrainingConfig, world: World) -> None:
        """Share the batches out.

        Raises:
            UserError: there are more processes than parts that a batch can be cut into.
        """
        self.members, self.world = members, world
        self.cut = cut_batch(
            config.batch_size,
            members[0].head.needs,
            accumulate=config.accumulate,
            processes=world.size,
            exact=members[0].device.type == "cpu",
        )
        self.rows = self.cut.rows(world.rank)  # of a batch, that this process needs
        self.updates = Updates(members)
        self.sums = Sums(self.cut, world, self.updates.parameters)
        self.losses = Losses(self.cut.weights, self.cut.mine(world.rank), world)
        self.notes: list[str] = []  # how the members are computed, where that is worth a word; who says one takes it
        self._teams: Sequence[Team] = [Alone(member) for member in members]
        self._try = len(members) > 1 and (
            config.batched == "on" or (config.batched == "auto" and members[0].device.type == "cuda")
        )
        cuda = members[0].device.type == "cuda" and world.size == 1 and config.cuda_graph == "auto"
        self.record: Record | None = cuda_graph if cuda else None  # after the first steps, which are done plainly
        self._recorded: Recorded | None = None
        self._plain = 0
        self._error: Exception | None = None
        self._raised: list[Tensor | float] = [0.0, 0.0]

    def fail(self, error: Exception) -> None:
        """This process cannot go on; the next step tells all others, and raises ``error``."""
        self._error = self._error or error

    def check(self) -> None:
        """Raise what :meth:`fail` was told, where no step follows."""
        if self._error:
            raise self._error

    def run(
        self, batches: Iterator[RepresentationBatch], *, step: int, rates: Sequence[float], look: bool = True
    ) -> bool:
        """One step on the next batch, of which ``batches`` gives the own rows; whether somebody asks to stop.

        Each member has its own of ``rates``. The answer is the same in every process. GPUs of several processes may be
        asked later: at a step with ``look``, or at every tenth.

        Raises:
            Exception: this process has failed (the error is raised in it), or another one (a UserError says why).
            LostError: another process has ended.
        """
        self.updates.set_rates(rates)
        if self.record and self._plain >= WARM:
            self.check()
            self._replay(next(batches), step)
            return stop_asked()
        self._plain += 1
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

    def _replay(self, batch: RepresentationBatch, step: int) -> None:
        """One step of a process that is alone, recorded where it can be."""
        if self._recorded is None and self.record:
            try:
                self._recorded = self._recording(batch, step, self.record)
            except Exception as error:  # whatever a head does that cannot be recorded
                reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
                self.notes.append(f"a step cannot be one CUDA graph ({reason}); it is done operation by operation")
                self.record = None
        self.losses.own.append(self._recorded.run(batch) if self._recorded else self._whole(batch, step))

    def _recording(self, batch: RepresentationBatch, step: int, record: Record) -> Recorded:
        alone = [team for team in self._teams if isinstance(team, Alone)]
        if alone and draws(alone[0].member, self._parts(batch)[0]):
            raise ValueError("its loss draws")
        for team in alone:
            team.draws = False
        try:
            return Recorded(lambda rows: self._whole(rows, step), batch, record)
        except Exception:
            for team in alone:
                team.draws = True
            raise

    def _whole(self, batch: RepresentationBatch, step: int) -> Tensor:
        """A step of a process that is alone; the losses of its parts."""
        held, losses_PMK = self._held(self._parts(batch), step)
        self.updates.run(self.sums.between(held, stop=False, failed=False)[0])
        return losses_PMK

    def state(self) -> dict[str, Tensor]:
        """Heads and optimiser as they are now: ``<member>.head.…`` and what :meth:`Updates.state` gives."""
        heads = {
            f"{place}.head.{name}": value
            for place, member in enumerate(self.members)
            for name, value in member.head.state_dict().items()
        }
        return {**heads, **self.updates.state()}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Take over what :meth:`state` gave."""
        for place, member in enumerate(self.members):
            start = f"{place}.head."
            own = {name.removeprefix(start): value for name, value in tensors.items() if name.startswith(start)}
            member.head.load_state_dict(own)
        self.updates.restore(tensors)

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
        computed: list[list[Computed]] = [[] for _ in self._teams]
        held = [
            self.sums.within(self._terms(team, parts, step, into))
            for team, into in zip(self._teams, computed, strict=True)
        ]
        self.losses.names = computed[0][0].names
        losses = [torch.cat([found.values_MK for found in part]) for part in zip(*computed, strict=True)]
        return held, torch.stack(losses)

    def _team_up(self, rows: RepresentationBatch, step: int) -> None:
        self._try = False
        self._teams, reason = team_up(self.members, rows, step=step, part=self.cut.mine(self.world.rank)[0])
        heads = f"{len(self.members)} heads"
        how = f"are computed one after the other: {reason}" if reason else "in one computation"
        self.notes.append(f"{heads} {how}")

    def _terms(
        self, team: Team, parts: Sequence[RepresentationBatch], step: int, into: list[Computed]
    ) -> Iterator[Gradients]:
        for part, rows in zip(self.cut.mine(self.world.rank), parts, strict=True):
            into.append(team.compute(rows, step=step, part=part, weight=self.cut.weights[part]))
            yield into[-1].gradients

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
