"""Several processes that share the units of one stage, each with a GPU of its own where there are several.

Who takes which unit is decided while they run: each takes the next one when it is done. What is done is read from disk,
so any of them may be killed: another one takes its place, and its unit is tried again after the others.
"""

from __future__ import annotations

import multiprocessing
import os
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess

from pipeline.errors import UserError
from pipeline.interruption import stop_if_asked, stop_if_asked_soon
from pipeline.processes import end_with_parent, leave_interrupts_to_parent
from pipeline.progress import Silent
from stages.base import Experiment, Stage, Unit, make_stage

VISIBLE = "CUDA_VISIBLE_DEVICES"
DEATHS = 3  # of processes at one unit, after which it is left alone
LOOK_SECONDS = 0.2  # between looks at whether to stop


def gpus() -> int:
    """How many GPUs this process sees."""
    import torch  # not needed where the number of processes is given

    return torch.cuda.device_count()


def run_side_by_side(
    stage: Stage, units: Sequence[Unit], count: int, began: Callable[[Unit], None]
) -> Iterator[tuple[Unit, str | None]]:
    """Each unit when it is done, with the reason if it failed. The stage must be prepared.

    Args:
        stage: whose.
        units: that are missing.
        count: of processes.
        began: is told of each unit when it is begun.

    Raises:
        Interrupted: somebody asked to stop; the units under way are dropped.
    """
    waiting, deaths = deque(units), Counter[str]()
    workers = [_Worker(stage, index, device) for index, device in enumerate(_devices(count))]
    try:
        while True:
            for worker in workers:
                if worker.unit is None and waiting:
                    began(unit := waiting.popleft())
                    worker.give(unit)
            busy = {worker.pipe: worker for worker in workers if worker.unit is not None}
            if not busy:
                return
            for pipe in wait(list(busy), timeout=LOOK_SECONDS):
                assert isinstance(pipe, Connection)
                unit, reason, death = busy[pipe].take()
                deaths[unit.id] += death
                if death and deaths[unit.id] < DEATHS:
                    stop_if_asked_soon()
                    waiting.append(unit)
                    continue
                yield unit, reason
            stop_if_asked()
    finally:
        for worker in workers:
            worker.end()


class _Worker:
    """One process after the other: a new one takes the place of one that has died."""

    def __init__(self, stage: Stage, index: int, device: str | None) -> None:
        self.stage, self.name, self.device = stage, f"{stage.name}-{index}", device
        self.process: SpawnProcess | None = None
        self.unit: Unit | None = None
        self.pipe: Connection

    def give(self, unit: Unit) -> None:
        """Have a unit done."""
        self.unit = unit
        if self.process is not None:
            try:
                self.pipe.send(unit)
            except OSError:  # it died while it waited
                self.end()
        if self.process is None:
            self._start()
            with suppress(OSError):  # if it dies at once, take() says so
                self.pipe.send(unit)

    def take(self) -> tuple[Unit, str | None, bool]:
        """The unit that is done, why it failed, and whether the process died at it."""
        unit, self.unit = self.unit, None
        assert unit is not None, "it was given a unit"
        try:
            return unit, self.pipe.recv(), False
        except (EOFError, OSError):
            assert self.process is not None
            self.process.join()
            reason = _death(self.process)
            self.end()
            return unit, reason, True

    def end(self) -> None:
        """End the process. One at a unit is not waited for: what it has not committed is as if it had never begun."""
        if self.process is None:
            return
        self.pipe.close()  # a process that waits for a unit ends
        if self.unit is not None:
            self.process.terminate()
        self.process.join()
        self.process = None

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")  # never forked: this process has threads
        self.pipe, theirs = context.Pipe()
        arguments = (self.stage.name, self.stage.experiment, theirs, self.device)
        self.process = context.Process(target=_work, args=arguments, name=self.name)
        self.process.start()
        theirs.close()


def _death(process: SpawnProcess) -> str:
    code = process.exitcode or 0
    how = f"ended by signal {-code}" if code < 0 else f"exit code {code}"
    hint = "; the system ends processes for want of memory" if code == -9 else ""
    return f"{DEATHS} processes died at it, the last one so: {how}{hint}. The same command tries again."


def _devices(count: int) -> list[str | None]:
    """For each process the value of CUDA_VISIBLE_DEVICES; None = as it is."""
    found = gpus()
    if not found:
        return [None] * count
    names = os.environ.get(VISIBLE, "").split(",") if os.environ.get(VISIBLE) else [str(i) for i in range(found)]
    return [names[index % found] for index in range(count)]


def _work(name: str, experiment: Experiment, pipe: Connection, device: str | None) -> None:
    """Run the units that come through ``pipe``; for each, answer why it failed, or None."""
    leave_interrupts_to_parent()
    end_with_parent()
    if device is not None:
        os.environ[VISIBLE] = device
    stage = make_stage(name, experiment)
    while True:
        try:
            unit: Unit = pipe.recv()
        except EOFError:
            return
        try:
            stage.run(unit, Silent())
        except UserError as error:
            pipe.send(str(error))
        else:
            pipe.send(None)
