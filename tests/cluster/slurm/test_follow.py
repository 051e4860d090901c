"""Following ends when all is done, or when no job is left; a terminal shows the last table alone."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from cluster.jobs.folder import jobs_folder
from cluster.jobs.submissions import Job, Submitted, Work
from cluster.slurm import follow as module
from cluster.slurm.follow import Shown, follow
from tests.cluster.slurm.conftest import Commands
from tests.cluster.slurm.test_executor import packed, stage


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(module, "GONE_SECONDS", 1.0)
    monkeypatch.setattr("cluster.jobs.tasks.ASK_SECONDS", 0.0)


def test_done(tmp_path: Path, commands: Commands, capfd: pytest.CaptureFixture[str]) -> None:
    packed(tmp_path)
    outcome = follow({"pack": stage(tmp_path, "pack")}, shared=None, stale_seconds=60)
    assert outcome.failed == {}
    assert outcome.lines == tuple(stage(tmp_path, "pack").summary())
    assert "10 of 10" in capfd.readouterr().err


def test_no_job_is_left(tmp_path: Path, commands: Commands) -> None:
    packed(tmp_path)
    stages = {name: stage(tmp_path, name) for name in ("pack", "cache")}
    folder = jobs_folder(stages["cache"]) / "20260101T000000000000-abcd"
    about = {"stage": "cache", "command": "c", "host": "h", "user": "u", "time": 1.0}
    Submitted(folder=folder, **about, jobs=(Job(id="7", array=False, work=(Work(units=("000000",)),)),)).write()  # type: ignore[arg-type]
    # it runs for three answers, then the queue forgets it
    script = (
        f"n=$(cat {tmp_path}/n 2>/dev/null || echo 0); echo $((n+1)) > {tmp_path}/n; if [ $n -ge 3 ]; then exit 0; fi"
    )
    commands.answer("squeue", "7|RUNNING|None|n1\n", script=script)
    outcome = follow(stages, shared=None, stale_seconds=60)
    assert list(outcome.failed) == ["cache"]
    assert outcome.lines == tuple(stages["pack"].summary())
    assert len(commands.asked("squeue")) > 4, "one answer without it is not enough"


def test_a_terminal_and_a_file() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    screen, file = Terminal(), io.StringIO()
    for shown in (Shown(screen), Shown(file)):
        for text in ("a\nb", "c\nd", "c\nd"):
            shown.show(text)
        shown.show("e", last=True)
    assert screen.getvalue() == "a\nb\n\x1b[2F\x1b[Jc\nd\n\x1b[2F\x1b[Jc\nd\n\x1b[2F\x1b[Je\n"
    assert file.getvalue() == "a\nb\ne\n"
