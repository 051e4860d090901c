"""The logs of tasks, and their last lines.

submitit names them ``<task>_<rank>_log.err`` and ``.out``, in the folder of the submission.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cluster.jobs.submissions import Submitted
from pipeline.many_files import file_names

BLOCK = 1 << 16  # bytes that are read at a time, from the end
LONGEST = 1 << 22  # bytes that are looked at; a line may have no end
_NAME = re.compile(r"(?P<task>\d+(?:_\d+)?)_(?P<rank>\d+)_log\.(?:err|out)")


@dataclass(frozen=True, kw_only=True)
class Log:
    """What one process of a task wrote.

    Attributes:
        task: id.
        rank: of the process.
        folder: of the submission.
        why: what is known of it: the failure, or the unit.
        time: of that, seconds since 1970.
    """

    task: str
    rank: int
    folder: Path
    why: str = ""
    time: float = 0.0

    @property
    def path(self) -> Path:
        """Standard error, or standard output where nothing was written there; it need not exist."""
        names = [self.folder / f"{self.task}_{self.rank}_log.{kind}" for kind in ("err", "out")]
        return next((path for path in names if path.exists() and path.stat().st_size), names[0])


def of_task(name: str, found: Sequence[Submitted]) -> list[Log]:
    """Of a task (``1234_7``), or of all tasks of a job (``1234``), those that were written to last at the end."""
    logs = []
    for submitted in found:
        if any(name == job.id or name in job.tasks() for job in submitted.jobs):
            logs += [log for log in logs_in(submitted.folder) if name in (log.task, log.task.partition("_")[0])]
    return sorted(logs, key=lambda log: log.time)


def started_in(folder: Path) -> set[str]:
    """Tasks of a submission that have a log, however empty: SLURM makes it when a task starts."""
    found = (_NAME.fullmatch(name) for kind in ("err", "out") for name in file_names(folder, f"_log.{kind}"))
    return {match["task"] for match in found if match}


def logs_in(folder: Path) -> list[Log]:
    """The logs in the folder of a submission, in no order; ``time`` is when they were written to last."""
    times: dict[tuple[str, int], float] = {}
    with os.scandir(folder) as entries:
        for entry in entries:
            if match := _NAME.fullmatch(entry.name):
                key, facts = (match["task"], int(match["rank"])), entry.stat()
                times[key] = max(times.get(key, 0.0), facts.st_mtime)
    return [Log(task=task, rank=rank, folder=folder, time=time) for (task, rank), time in times.items()]


def last_lines(path: Path, count: int) -> list[str]:
    """The last lines of a file, which may be large."""
    with path.open("rb") as file:
        end = file.seek(0, os.SEEK_END)
        data = b""
        while end and data.count(b"\n") <= count and len(data) < LONGEST:
            start = max(0, end - BLOCK)
            file.seek(start)
            data, end = file.read(end - start) + data, start
    return data.decode(errors="replace").splitlines()[-count:]
