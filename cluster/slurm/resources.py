"""What a site's YAML says: what each task asks of SLURM, and how units are cut into tasks."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from pipeline.config import config, field_names, parse, to_plain
from pipeline.errors import UserError
from stages.base import stage_names

Scalar = bool | int | str
_TIME = re.compile(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?")


@config
class Resources:
    """Of each task of a stage."""

    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    constraint: str | None = None
    reservation: str | None = None
    gres: str | None = None  # e.g. gpu:a100:4; most sites take gpus_per_node
    gpus_per_node: Annotated[int, Field(ge=0)] = 0
    cpus_per_task: Annotated[int, Field(ge=1)] | None = None  # of each rank; also its number of threads. Set it
    mem_gb: Annotated[float, Field(gt=0)] | None = None  # a node
    time: str | int = 1440  # limit: minutes, or as SLURM writes it: hours:minutes:seconds, days-hours
    nodes: Annotated[int, Field(ge=1)] = 1
    tasks_per_node: Annotated[int, Field(ge=1)] | None = None  # ranks a node; default: one a GPU, else one
    sbatch: Mapping[str, Scalar] = Field(default_factory=dict)  # further options: {exclude: "n[1-3]", exclusive: true}
    srun: tuple[str, ...] = ()  # further arguments of srun
    setup: tuple[str, ...] = ()  # shell lines before the work: module load …, export …
    container: str | None = None  # put before the python that runs, e.g. apptainer exec --nv /images/torch.sif
    python: str | None = None  # the python on the nodes; default: the one that submits
    units_per_task: Annotated[int, Field(ge=1)] = 8  # that one task works in order; more if SLURM takes fewer tasks
    max_parallel: Annotated[int, Field(ge=1)] = 64  # tasks of an array that run at once

    def __post_init__(self) -> None:
        minutes(self.time)
        if elsewhere := [name for name in ("clusters", "cluster", "M") if name in self.sbatch]:
            raise ValueError(
                f"sbatch.{elsewhere[0]}: squeue would ask for these jobs on another cluster. Say it to all commands of "
                f"SLURM, in the shell: export SLURM_CLUSTERS={self.sbatch[elsewhere[0]]}"
            )

    @property
    def ranks_per_node(self) -> int:
        """Processes on each node."""
        return self.tasks_per_node or max(1, self.gpus_per_node)

    @property
    def ranks(self) -> int:
        """Processes of a task."""
        return self.nodes * self.ranks_per_node

    def alone(self) -> Resources:
        """The same for a stage that can use but one process."""
        return replace(self, nodes=1, tasks_per_node=1)


@config
class SlurmConfig(Resources):
    """A site: what every stage's tasks ask for, and what differs for single stages."""

    # Stage → any of the keys above, e.g. cluster.stages.train_head.nodes=2.
    stages: Mapping[str, Mapping[str, Any]] = Field(default_factory=dict)
    wait: bool = False  # follow until everything is done, with a live table; otherwise return once it is submitted
    grace_seconds: Annotated[int, Field(ge=10)] = 120  # before the time limit, in which tasks come to a safe point
    requeue: bool = True  # whether tasks that are interrupted or die go back into the queue by themselves
    stale_seconds: Annotated[float, Field(ge=10)] = 60.0  # after which a claim without heartbeat belongs to nobody
    # The code that the tasks run. snapshot: a copy made when it is submitted; commit: the installed one, which must be
    # a git checkout without changes, and the commit is noted; installed: as it lies there when the task starts.
    code: Literal["snapshot", "commit", "installed"] = "snapshot"
    folder: Path | None = None  # shared folder of logs and claims; default: jobs/ in the run folder

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in self.stages:
            if name not in stage_names():
                raise ValueError(f"stages.{name}: there is no such stage. Valid: {', '.join(stage_names())}.")
            self.of(name)

    def of(self, stage: str) -> Resources:
        """What the tasks of a stage ask for.

        Raises:
            UserError: an unknown key or a value out of range.
        """
        common = {name: getattr(self, name) for name in field_names(Resources)}
        return parse(Resources, to_plain({**common, **self.stages.get(stage, {})}), f"cluster.stages.{stage}")


def minutes(time: str | int) -> int:
    """A time limit in minutes, rounded up.

    Raises:
        ValueError: it is not written as SLURM writes times.
    """
    if isinstance(time, int):
        if time < 1:
            raise ValueError(f"time: {time} minutes are no limit.")
        return time
    match = _TIME.fullmatch(time.strip())
    if match is None:
        raise ValueError(f"time: '{time}' is no time. Write minutes, hours:minutes:seconds or days-hours.")
    days, first, second, third = match.groups()
    if days is not None:  # days-hours[:minutes[:seconds]]
        seconds = int(days) * 86_400 + int(first) * 3600 + int(second or 0) * 60 + int(third or 0)
    elif third is not None:  # hours:minutes:seconds
        seconds = int(first) * 3600 + int(second) * 60 + int(third)
    else:  # minutes[:seconds]
        seconds = int(first) * 60 + int(second or 0)
    if not seconds:
        raise ValueError(f"time: '{time}' is no limit.")
    return math.ceil(seconds / 60)


def check_no_newline(where: str, value: str) -> str:
    """A value that goes into one line of a script.

    Raises:
        UserError: it has several lines.
    """
    if "\n" in value:
        raise UserError(f"{where}: a line break cannot stand there: {value!r}")
    return value
