"""Several processes that share the units of one stage, each with a GPU of its own where there are several.

Who takes which unit is decided while they run: each takes the next one when it is done. What is done is read from disk,
so any of them may be killed.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess

from pipeline.errors import UserError
from pipeline.processes import end_with_parent, leave_interrupts_to_parent
from pipeline.progress import Silent
from stages.base import Experiment, Stage, Unit, make_stage

VISIBLE = "CUDA_VISIBLE_DEVICES"


def gpus() -> int:
    """How many GPUs this process sees."""
    import torch  # not needed where the number of processes is given

    return torch.cuda.device_count()


def run_side_by_side(stage: Stage, units: Sequence[Unit], count: int) -> Iterator[tuple[Unit, str | None]]:
    """Each unit when it is done, with the reason if it failed. The stage must be prepared.

    A process that dies takes its unit with it, which is reported as failed; the others go on.
    """
    context = multiprocessing.get_context("spawn")  # never forked: this process has threads
    waiting = list(reversed(units))
    working: dict[Connection, tuple[SpawnProcess, Unit | None]] = {}
    try:
        for index, device in enumerate(_devices(count)):
            ours, theirs = context.Pipe()
            process = context.Process(
                target=_work, args=(stage.name, stage.experiment, theirs, device), name=f"{stage.name}-{index}"
            )
            process.start()
            theirs.close()
            working[ours] = (process, _give(ours, waiting))
        while any(unit is not None for _, unit in working.values()):
            for pipe in wait([pipe for pipe, (_, unit) in working.items() if unit is not None]):
                assert isinstance(pipe, Connection)
                process, unit = working[pipe]
                assert unit is not None
                try:
                    reason = pipe.recv()
                    working[pipe] = (process, _give(pipe, waiting))
                except EOFError:
                    process.join()
                    reason = _death(process)
                    working[pipe] = (process, None)
                yield unit, reason
        for unit in waiting:  # nobody is left to do them
            yield unit, "the processes that were to do it have died; the same command tries again"
    finally:
        for pipe in working:
            pipe.close()  # a process that waits for a unit ends
        for process, unit in working.values():
            if unit is not None:
                process.terminate()
            process.join()


def _give(pipe: Connection, waiting: list[Unit]) -> Unit | None:
    if not waiting:
        return None
    unit = waiting.pop()
    pipe.send(unit)
    return unit


def _death(process: SpawnProcess) -> str:
    code = process.exitcode or 0
    how = f"ended by signal {-code}" if code < 0 else f"exit code {code}"
    hint = "; the system ends processes for want of memory" if code == -9 else ""
    return f"the process that did it died ({how}{hint}). The same command tries again."


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
