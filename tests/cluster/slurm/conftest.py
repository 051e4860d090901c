"""A stage whose units are files, and commands of SLURM that answer what a test wants and keep what they were asked."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pipeline import interruption
from pipeline.errors import UserError
from pipeline.progress import Progress
from stages.base import Status, Unit


class Units:
    """As much of a stage as tasks ask for. ``act`` says what happens at a unit before it is committed."""

    name = "cache"
    side_by_side = True
    by_ranks = False
    resumes_units = False

    def __init__(self, folder: Path, ids: list[str]) -> None:
        self.folder, self.ids = folder, ids
        self.act: Callable[[str], Any] = lambda unit: None
        self.begun = True
        self.log: list[str] = []

    def prepare(self) -> None:
        self.log.append("prepare")

    def plan(self) -> list[Unit]:
        return [Unit(id=name, what=f"{name}.tar") for name in self.ids if not (self.folder / name).exists()]

    def lacks(self, unit: Unit) -> bool:
        return not (self.folder / unit.id).exists()

    def run(self, unit: Unit, progress: Progress) -> None:
        self.log.append(unit.id)
        self.act(unit.id)
        (self.folder / unit.id).touch()

    def finish(self, progress: Progress) -> None:
        self.log.append("finish")

    def status(self) -> Status:
        missing = len(self.plan())
        return Status(done=len(self.ids) - missing, total=len(self.ids) if self.begun else None)


def refuse(unit: str) -> None:
    """What a stage does with a unit that cannot be."""
    raise UserError(f"{unit} is broken at byte 7")


@pytest.fixture(autouse=True)
def _signals() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGUSR2, signal.SIGTERM, signal.SIGCONT)}
    yield
    interruption.forget()
    for number, handler in before.items():
        signal.signal(number, handler)


class Commands:
    """Commands on PATH: each prints what it is told and adds its arguments to a log."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()

    def answer(self, name: str, text: str = "", *, code: int = 0, error: str = "", script: str = "") -> None:
        """Make the command ``name``; ``script`` is shell that runs before it answers."""
        (self.folder / f"{name}.out").write_text(text)
        (self.folder / f"{name}.err").write_text(error)
        path = self.folder / name
        path.write_text(
            f'#!/bin/bash\nPATH=/usr/bin:/bin\necho "$*" >> "{self.folder}/{name}.log"\n{script}\n'
            f'cat "{self.folder}/{name}.out"\ncat "{self.folder}/{name}.err" >&2\nexit {code}\n'
        )
        path.chmod(0o755)

    def asked(self, name: str) -> list[str]:
        """What the command was asked, a line each."""
        log = self.folder / f"{name}.log"
        return log.read_text().splitlines() if log.exists() else []


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Commands:
    """No command of SLURM but those that the test makes."""
    made = Commands(tmp_path / "bin")
    monkeypatch.setenv("PATH", str(made.folder))
    for name in ("squeue", "sbatch", "srun", "scontrol", "sacctmgr", "scancel", "sacct"):
        made.answer(name, code=1, error=f"{name}: no such thing in this test\n")
    return made
