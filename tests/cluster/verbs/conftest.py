"""Made-up records of jobs beside the toy stages, and commands of SLURM that answer what a test wants."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import pytest

from cluster.jobs.claims import FOLDER as CLAIMS
from cluster.jobs.claims import Claim
from cluster.jobs.folder import jobs_folder
from cluster.jobs.journal import journal_path
from cluster.jobs.now import Overview
from cluster.jobs.overview import look
from cluster.jobs.submissions import Job, Submitted, Work
from cluster.jobs.table import table
from stages.base import Status
from tests.cluster.slurm.conftest import Commands

#: Seconds ago, event, and what there is of unit and reason.
Line = tuple[float, str] | tuple[float, str, str | None] | tuple[float, str, str | None, str]


class Toy:
    """As much of a stage as a look asks for: nine units, a file for each that is done or has failed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.name = folder.name

    def status(self) -> Status:
        done = frozenset(path.stem for path in self.folder.glob("*.done"))
        failed = {path.stem: path.read_text() for path in sorted(self.folder.glob("*.failed"))}
        total = 9 if list(self.folder.glob("*.done")) or failed else None
        return Status(done=len(done), total=total, samples=10 * len(done), failed=failed, done_ids=done)


class Run:
    """Stages, what was submitted for them in the past, and what SLURM says now."""

    def __init__(self, root: Path, commands: Commands) -> None:
        self.stages = {name: Toy(root / name) for name in ("gather", "train", "evaluate")}
        self.commands = commands
        self.count = 0

    def jobs(self, link: str) -> Path:
        """Folder of the job records of a stage."""
        return jobs_folder(self.stages[link])  # type: ignore[arg-type]

    def look(self) -> Overview:
        """At the stages that were begun or submitted."""
        return look({link: stage for link, stage in self.stages.items() if stage.folder.exists()})  # type: ignore[misc]

    def told(self) -> list[str]:
        """The lines of the table."""
        return table(self.look()).splitlines()

    def done(self, link: str, *units: str) -> None:
        """Commit units."""
        self._touch(link, units, "done", "")

    def failed(self, link: str, *units: str, reason: str = "torn") -> None:
        """Keep why units failed."""
        self._touch(link, units, "failed", reason)

    def _touch(self, link: str, units: Sequence[str], kind: str, text: str) -> None:
        self.stages[link].folder.mkdir(parents=True, exist_ok=True)
        for unit in units:
            (self.stages[link].folder / f"{unit}.{kind}").write_text(text)

    def submitted(
        self, link: str, jobs: dict[str, Sequence[Sequence[str] | tuple[int, int]]], after: Sequence[str] = ()
    ) -> Path:
        """Record a submission: job → the units (or the share) of each of its tasks; one task is no array."""
        self.count += 1
        made = [
            Job(
                id=job,
                array=len(tasks) > 1,
                work=tuple(Work(share=part) if isinstance(part, tuple) else Work(units=tuple(part)) for part in tasks),
            )
            for job, tasks in jobs.items()
        ]
        folder = self.jobs(link) / f"20260101T00000{self.count}-abc"
        about = {"stage": link, "command": f"submit stage={link}", "host": "login", "user": "nobody", "time": 1.0}
        Submitted(folder=folder, after=tuple(after), jobs=tuple(made), **about).write()  # type: ignore[arg-type]
        return folder

    def journal(self, folder: Path, task: str, *lines: Line, rank: int = 0) -> None:
        """What one process of a task noted."""
        path = journal_path(folder, task, rank)
        path.parent.mkdir(exist_ok=True)
        now = time.time()
        with path.open("a") as file:
            for age, event, *more in lines:
                unit, reason = [*more, None, None][:2]
                plain = {"time": now - age, "event": event, "unit": unit, "reason": reason, "host": "h", "node": "n1"}
                file.write(json.dumps({key: value for key, value in plain.items() if value is not None}) + "\n")
        os.utime(path, (now, now - min(line[0] for line in lines)))

    def log(self, folder: Path, task: str, text: str, *, kind: str = "err", rank: int = 0, age: float = 0) -> Path:
        """What it wrote."""
        path = folder / f"{task}_{rank}_log.{kind}"
        path.write_text(text)
        os.utime(path, (time.time(), time.time() - age))
        return path

    def claim(self, link: str, unit: str, *, task: str, age: float = 0) -> None:
        """Somebody holds a unit; ``age`` is that of the heartbeat."""
        path = self.jobs(link) / CLAIMS / f"{unit}.1"
        path.parent.mkdir(parents=True, exist_ok=True)
        claim = Claim(unit=unit, task=task, restart=0, host="h", machine="m", pid=1, token="t")
        path.write_text(json.dumps(asdict(claim)))
        os.utime(path, (time.time(), time.time() - age))

    def queue(self, *tasks: tuple[str, str, str, Path]) -> None:
        """What squeue says: task, state, reason, folder of the submission."""
        lines = [
            f"{task}|{state}|{reason}|n1|{folder}/.submission_file_1.sh\n" for task, state, reason, folder in tasks
        ]
        self.commands.answer("squeue", "".join(lines))


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """No job was ever submitted, and no command of SLURM answers."""
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    return Run(tmp_path / "runs", Commands(tmp_path / "bin"))
