"""The verbs that ask about jobs, given as commands."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from cluster.jobs.deaths import MOST, given_up, note_death
from cluster.jobs.submissions import Job, Submitted, Work
from cluster.overrides import read
from cluster.submit import main, understand
from pipeline.errors import UserError
from tests.cluster.slurm.conftest import Commands

Say = Callable[..., list[str]]
SLOW = ("torch", "zarr", "timm", "torchvision", "scipy", "sklearn", "matplotlib", "onnx", "submitit", "numcodecs")


@pytest.fixture
def commands(house: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Commands:
    """The stages of a small house, and no SLURM."""
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    return Commands(tmp_path / "bin")


@pytest.fixture
def say(commands: Commands, capsys: pytest.CaptureFixture[str]) -> Say:
    """Give a command line; the lines that it prints. ``code``: how it must end."""

    def given(*words: str, code: int = 0) -> list[str]:
        capsys.readouterr()
        assert main(words) == code
        out, error = capsys.readouterr()
        return (error if code else out).splitlines()

    return given


def test_words_after_logs_are_what_is_asked_about(commands: Commands) -> None:
    line = read(["logs", "000123", "stage=gather", "1234_7", "lines=3", "units=2"])
    assert (line.options.of, line.options.lines) == (("000123", "1234_7"), 3)
    assert line.command() == "submit stage=gather units=2"
    with pytest.raises(UserError, match="cannot read '000123': settings are written key=value"):
        read(["status", "000123"])


def test_logs_of_a_run_in_place(say: Say) -> None:
    assert say("logs", "stage=gather", code=1)[0].startswith("no log in runs/gather-")
    say("stage=gather", "failing=['1']", code=1)
    about, path, *lines = say("logs", "stage=gather", "lines=2")
    assert (about, path.split("-")[0]) == ("== gather: in place", "== runs/gather")
    assert lines[-2].endswith("failed: gather, unit 1 (toy/1): toy/1: the tar is torn at byte 7. Pack it again.")
    assert len(lines) == 3
    told = json.loads("\n".join(say("logs", "1", "stage=gather", "--json")))
    assert [line.split(" ", 2)[2] for line in told[0]["lines"]] == [
        "gather: unit 1 failed, the others go on",
        "failed: gather, unit 1 (toy/1): toy/1: the tar is torn at byte 7. Pack it again.",
    ]
    assert say("logs", "2", "stage=gather", code=1)[0].startswith("no log of 2 in runs/gather-")


def test_retry_puts_back_what_failed_and_what_was_given_up(say: Say) -> None:
    say("stage=gather", "failing=['1','2']", code=1)
    jobs = understand(read(["stage=gather"])).stages["gather"].folder.absolute() / "jobs"
    for unit in ("1", "+start-12"):
        for _ in range(MOST):
            note_death(jobs, unit, "task 12 died")
    assert say("retry", "stage=gather", "--unit=7", code=1) == [
        "submit: unit 7 has not failed; `submit status` names those that have."
    ]
    say("retry", "stage=gather", "--unit=1", "failing=['2']", code=1)
    assert given_up(jobs).keys() == {"+start-12"}
    assert say("status", "stage=gather")[3] == "gather: unit 2 failed: torn"
    lines = say("retry", "stage=gather")
    assert lines[0] == "gather: unit 2 is put back: torn"
    assert given_up(jobs) == {}
    assert lines[-1] == "  submit stage=gather"
    assert say("status", "stage=gather")[1].split()[:4] == ["gather", "3", "of", "3"]
    assert say("retry", "stage=gather") == ["nothing to put back; what is missing is done by", "  submit stage=gather"]


@pytest.mark.parametrize("verb", ["cancel", "retry"])
def test_what_changes_something_wants_to_know_of_which_stage(say: Say, verb: str) -> None:
    assert "stage=<name>" in say(verb, code=2)[0]


def test_cancel_without_jobs_asks_nobody(say: Say, commands: Commands) -> None:
    assert say("cancel", "stage=gather") == [
        "nothing of this run waits or runs",
        "what is done stays done; this goes on:",
        "  submit stage=gather",
    ]
    assert json.loads("\n".join(say("cancel", "stage=all", "--json"))) == {
        "cancelled": [],
        "command": "submit stage=all",
    }
    assert commands.asked("squeue") == []


def test_cancel_says_what_was_ended_and_what_goes_on(say: Say, commands: Commands) -> None:
    folder = understand(read(["stage=gather"])).stages["gather"].folder.absolute() / "jobs" / "20260101T000000-abc"
    about = {"stage": "gather", "command": "submit stage=gather cluster=slurm", "host": "h", "user": "u", "time": 1.0}
    work = (Work(units=("0",)), Work(units=("1",)))
    Submitted(folder=folder, jobs=(Job(id="12", array=True, work=work),), **about).write()  # type: ignore[arg-type]
    commands.answer("scancel")
    commands.answer("squeue", f"12_1|RUNNING|None|n1|{folder}/x.sh\n")
    assert say("cancel", "stage=gather") == [
        "gather: job 12 was told to end (RUNNING 1)",
        "what is done stays done; this goes on:",
        "  submit stage=gather cluster=slurm",
    ]
    assert commands.asked("scancel") == ["12"]
    commands.answer("squeue", code=1, error="no controller\n")
    assert "so nobody can tell which jobs run" in say("cancel", "stage=gather", code=1)[0]


def test_help_of_a_verb_says_what_it_takes(say: Say) -> None:
    assert say("help", "logs")[0] == (
        "submit logs [unit|job|task …] [key=value …]: show the last lines of what failed, or of units and tasks: "
        "logs 000123"
    )
    assert any(line.startswith("  lines = 20") for line in say("logs", "--help"))


def test_who_only_looks_waits_for_no_package_that_computes(tmp_path: Path) -> None:
    """They take seconds to import. What a head is by default stands in its file, beside code that needs torch."""
    runs = f"runs_root={tmp_path}/runs"
    lines = [
        *(["--help"], ["help", "stage=train_head"], ["status", runs], ["status", runs, "cluster=slurm"]),
        *(["logs", runs], ["cancel", "stage=all", runs], ["plan", runs], ["retry", "stage=cache", runs, "--unit", "0"]),
        *(["status", "head.magrin=1"], ["status", "backbone.modle=x"], ["status", "dataset.rote=x"]),
    ]
    script = (
        "import sys; from cluster.submit import main\n"
        f"codes = [main(words) for words in {lines!r}]\n"
        f"sys.exit(' '.join({set(SLOW)!r} & set(sys.modules)) or str(codes))"
    )
    asked = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    *complaints, codes = asked.stderr.splitlines()
    assert codes == "[0, 0, 0, 0, 1, 0, 0, 1, 2, 2, 2]"
    assert [line.split(": unknown key. Did you mean ")[-1].split("?")[0] for line in complaints[-3:]] == [
        "'margin'",
        "'model'",
        "'root'",
    ]
