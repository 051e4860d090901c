"""One record a submission: which jobs were made, and which units each of their tasks is to do.

``<jobs folder>/<submission id>/submission.json``, beside the logs and scripts of its jobs. It is written once a job was
accepted, so a job that was made in the moment before its maker was killed has no record: its tasks still do their work,
and claims keep others from doing the same.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.files import read_json, write_json
from stages.base import Unit

RECORD = "submission.json"


@dataclass(frozen=True, kw_only=True)
class Work:
    """What one task is to do: units by their ids, or a share of whatever is missing when it starts.

    Attributes:
        units: ids, in order; None: a share.
        share: (k, n): the k-th of n shares of the missing units.
    """

    units: tuple[str, ...] | None = None
    share: tuple[int, int] = (0, 1)

    def of(self, missing: Iterable[Unit]) -> list[Unit]:
        """Those of ``missing`` that are this task's, in order. A share depends on the unit's id alone."""
        if self.units is not None:
            by_id = {unit.id: unit for unit in missing}
            return [by_id[name] for name in self.units if name in by_id]
        k, n = self.share
        return [unit for unit in missing if zlib.crc32(unit.id.encode()) % n == k]

    def plain(self) -> dict[str, Any]:
        """As JSON."""
        return {"share": list(self.share)} if self.units is None else {"units": list(self.units)}


@dataclass(frozen=True, kw_only=True)
class Job:
    """A job of the scheduler.

    Attributes:
        id: the scheduler's.
        array: whether its tasks are ``<id>_0``, ``<id>_1`` …; otherwise it has one task, ``<id>``.
        work: of each task.
    """

    id: str
    array: bool
    work: tuple[Work, ...]

    def tasks(self) -> dict[str, Work]:
        """Task id → work."""
        return {f"{self.id}_{index}" if self.array else self.id: work for index, work in enumerate(self.work)}


@dataclass(frozen=True, kw_only=True)
class Submitted:
    """A submission of one stage.

    Attributes:
        folder: ``<jobs folder>/<submission id>``; ids sort by time.
        stage: the words that chose it in the chain.
        command: that goes on with the work.
        host: where it was submitted.
        user: who did.
        time: seconds since 1970.
        code: what the tasks run: ``snapshot <digest>``, ``commit <hash>``, ``installed``.
        after: ids of the jobs that had to end well before.
        jobs: that were made.
    """

    folder: Path
    stage: str
    command: str
    host: str
    user: str
    time: float
    code: str = ""
    after: tuple[str, ...] = ()
    jobs: tuple[Job, ...] = ()

    def write(self) -> None:
        """Write the record."""
        jobs = [{"job": job.id, "array": job.array, "tasks": [work.plain() for work in job.work]} for job in self.jobs]
        about = {"stage": self.stage, "command": self.command, "host": self.host, "user": self.user, "time": self.time}
        write_json(self.folder / RECORD, {**about, "code": self.code, "after": list(self.after), "jobs": jobs})


def read_submission(folder: Path) -> Submitted:
    """The record of one submission.

    Raises:
        FileNotFoundError: nothing was submitted from this folder.
        ValueError: the record is damaged.
    """
    try:
        plain = read_json(folder / RECORD)
        jobs = tuple(
            Job(id=str(job["job"]), array=bool(job["array"]), work=tuple(_work(item) for item in job["tasks"]))
            for job in plain["jobs"]
        )
        about = {name: str(plain[name]) for name in ("stage", "command", "host", "user", "code")}
        return Submitted(folder=folder, **about, time=float(plain["time"]), after=tuple(plain["after"]), jobs=jobs)
    except (LookupError, TypeError, AttributeError) as error:
        raise ValueError(f"{folder / RECORD} is damaged: {error}") from error


def _work(plain: dict[str, Any]) -> Work:
    if "units" in plain:
        return Work(units=tuple(plain["units"]))
    k, n = plain["share"]
    return Work(units=None, share=(int(k), int(n)))


def submissions(jobs: Path) -> Iterator[Submitted]:
    """All submissions of a stage, oldest first. Damaged records are passed over: they are no truth."""
    for path in sorted(jobs.glob(f"*/{RECORD}")):
        try:
            yield read_submission(path.parent)
        except (ValueError, FileNotFoundError):
            continue


def job_ids(found: Sequence[Submitted]) -> list[str]:
    """The ids of all their jobs."""
    return [job.id for submitted in found for job in submitted.jobs]
