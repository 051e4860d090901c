"""One process: the arithmetic of several, with nobody to add up with; on a GPU a step can be one CUDA graph."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torch import Tensor

from pipeline.heads.base import RepresentationBatch
from pipeline.interruption import stop_asked
from pipeline.training.config import TrainingConfig
from pipeline.training.engines.ddp import Ddp
from pipeline.training.members import Member
from pipeline.training.recorded import Record, Recorded, cuda_graph, draws
from pipeline.training.teams import Alone
from pipeline.world import World

WARM = 3  # steps that are done plainly before one is recorded: they make what is made once


class Single(Ddp):
    """A process that is alone, and can record its steps."""

    def __init__(self, members: Sequence[Member], config: TrainingConfig, world: World) -> None:
        super().__init__(members, config, world)
        cuda = members[0].device.type == "cuda" and config.cuda_graph == "auto"
        self.record: Record | None = cuda_graph if cuda else None  # after the first steps, which are done plainly
        self._recorded: Recorded | None = None
        self._plain = 0

    def run(
        self, batches: Iterator[RepresentationBatch], *, step: int, rates: Sequence[float], look: bool = True
    ) -> bool:
        """As :class:`Engine` says."""
        if not self.record or self._plain < WARM:
            self._plain += 1
            return super().run(batches, step=step, rates=rates, look=look)
        self.updates.set_rates(rates)
        self.check()
        self._replay(next(batches), step)
        return stop_asked()

    def _replay(self, batch: RepresentationBatch, step: int) -> None:
        """One step, recorded where it can be."""
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
        """A step; the losses of its parts."""
        held, losses_PMK = self._held(self._parts(batch), step)
        self.updates.run(self.sums.between(held, stop=False, failed=False)[0])
        return losses_PMK
