"""What a task does with its units: in order, each once, whatever comes between."""

from __future__ import annotations

import errno
import os
import pickle
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from cluster.jobs.claims import FOLDER, Claim, Claims
from cluster.jobs.deaths import deaths, given_up, note_death
from cluster.jobs.journal import journal_path, read_journal
from cluster.jobs.submissions import Work
from cluster.slurm import task as module
from cluster.slurm.script import AGAIN, ASK, STOPPED
from cluster.slurm.task import FAILED, Runner, Task
from pipeline.interruption import stop_if_asked
from tests.cluster.slurm.conftest import Commands, Units, refuse

IDS = ["a", "b", "c", "d"]


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Units:
    folder = tmp_path / "store"
    folder.mkdir()
    made = Units(folder, list(IDS))
    monkeypatch.setattr(module, "make_stage", lambda name, experiment: made)
    monkeypatch.setattr(module, "BEAT_SECONDS", 0.05)
    return made


def runner(
    tmp_path: Path, *, units: list[str] | None = None, task: str = "7_1", minutes: int = 60, rank: int = 0
) -> Runner:
    work = Work(units=tuple(units if units is not None else IDS))
    env = SimpleNamespace(job_id=task, global_rank=rank, local_rank=rank, num_tasks=1, num_nodes=1)
    made = Task(
        link="cache",
        stage="cache",
        experiment=pickle.dumps(None),
        jobs=tmp_path / "jobs",
        submission=tmp_path / "jobs" / "s",
        work=work,
        minutes=minutes,
        stale_seconds=60,
    )
    return Runner(made, env)  # type: ignore[arg-type]


def events(tmp_path: Path, task: str = "7_1") -> list[tuple[str, str | None]]:
    path = journal_path(tmp_path / "jobs" / "s", task, 0)
    return [(event.event, event.unit) for event in read_journal(path)] if path.exists() else []


def claims_left(tmp_path: Path) -> list[str]:
    return sorted(path.name for path in (tmp_path / "jobs" / FOLDER).iterdir())


def test_units_in_order_then_the_end_of_the_stage(tmp_path: Path, stage: Units) -> None:
    assert runner(tmp_path, units=["c", "a"]).run() == 0
    assert stage.log == ["prepare", "c", "a"], "others are missing: the stage is not done"
    assert runner(tmp_path, units=["b", "a", "d"], task="7_2").run() == 0
    assert stage.log[3:] == ["prepare", "b", "d", "finish"]
    did = [("started", None), ("unit", "c"), ("done", "c"), ("unit", "a"), ("done", "a"), ("ended", None)]
    assert events(tmp_path) == did
    assert claims_left(tmp_path) == []


@pytest.mark.parametrize("act", [refuse, lambda unit: 1 / 0])
def test_a_unit_that_cannot_be_fails_alone(
    tmp_path: Path, stage: Units, act: Callable[[str], object], capfd: pytest.CaptureFixture[str]
) -> None:
    stage.act = lambda unit: act(unit) if unit == "b" else None
    assert runner(tmp_path).run() == FAILED
    assert [unit.id for unit in stage.plan()] == ["b"]
    assert "finish" not in stage.log
    assert ("failed", "b") in events(tmp_path)
    said = capfd.readouterr().err
    assert "failed: cache, unit b (b.tar)" in said
    assert "byte 7" in said or "ZeroDivisionError" in said
    stage.act = lambda unit: None
    assert runner(tmp_path, task="8").run() == 0
    assert stage.log[-1] == "finish"


def test_what_somebody_else_is_at_is_waited_for_and_not_done_twice(tmp_path: Path, stage: Units) -> None:
    other = Claims(tmp_path / "jobs", task="6_0")
    assert isinstance(other.take("b"), Claim)

    def finish_it() -> None:
        while ("waiting", "b") not in events(tmp_path):
            time.sleep(0.01)
        (stage.folder / "b").touch()
        other.give_back("b")

    thread = threading.Thread(target=finish_it)
    thread.start()
    assert runner(tmp_path).run() == 0
    thread.join()
    other.close()
    assert stage.log == ["prepare", "a", "c", "d", "finish"]
    assert ("skipped", "b") in events(tmp_path)


def test_a_unit_that_kills_is_left_alone_after_three_deaths(tmp_path: Path, stage: Units) -> None:
    for count in (1, 2):
        note_death(tmp_path / "jobs", "b", f"task 6 died, {count}")
    assert runner(tmp_path, units=["a"]).run() == 0
    dead(tmp_path, "b")
    assert runner(tmp_path, units=["b", "c"], task="7_2").run() == FAILED
    assert stage.log == ["prepare", "a", "prepare", "c"]
    assert list(given_up(tmp_path / "jobs")) == ["b"]
    assert deaths(tmp_path / "jobs", "b")[-1] == "task 7_2 on n1 was ended and its task started anew"


def dead(tmp_path: Path, unit: str) -> None:
    """The claim that the task 7_2 left behind when it died, one start ago."""
    claim = '{"unit": "%s", "task": "7_2", "restart": -1, "host": "n1", "machine": "m", "pid": 1, "token": "t"}'
    (tmp_path / "jobs" / FOLDER / f"{unit}.0").write_text(claim % unit)


def test_done_after_two_deaths_is_forgiven(tmp_path: Path, stage: Units) -> None:
    for count in (1, 2):
        note_death(tmp_path / "jobs", "b", f"task 6 died, {count}")
    assert runner(tmp_path).run() == 0
    assert deaths(tmp_path / "jobs", "b") == []


def test_a_task_that_dies_before_it_begins_does_not_try_for_ever(tmp_path: Path, stage: Units) -> None:
    name = "+start-7_2-0"
    for _ in range(2):
        note_death(tmp_path / "jobs", name, "died")
    Claims(tmp_path / "jobs").close()
    dead(tmp_path, name)
    assert runner(tmp_path, task="7_2").run() == FAILED
    assert stage.log == []


def interrupt(number: int) -> Callable[[str], None]:
    """What a unit sees of a signal: its next safe point."""

    def act(unit: str) -> None:
        if unit == "b":
            os.kill(os.getpid(), number)
            stop_if_asked()

    return act


def test_before_the_time_limit_the_unit_is_dropped_and_the_task_goes_on(tmp_path: Path, stage: Units) -> None:
    stage.act = interrupt(signal.SIGUSR2)
    assert runner(tmp_path).run() == AGAIN
    assert stage.log == ["prepare", "a", "b"]
    assert events(tmp_path)[-2:] == [("dropped", "b"), ("ended", None)]
    assert claims_left(tmp_path) == []
    assert deaths(tmp_path / "jobs", "b") == []


@pytest.mark.parametrize(
    ("answer", "code", "told_to_end", "told_that_time_ends"),
    [
        ("JobId=7 JobState=RUNNING Restarts=0", 0, AGAIN, AGAIN),  # TERM: to be preempted
        ("JobId=7 JobState=COMPLETING Restarts=1", 0, AGAIN, AGAIN),  # requeued
        ("JobId=7 JobState=COMPLETING Reason=TimeLimit Restarts=0", 0, STOPPED, AGAIN),  # it took too long to stop
        ("JobId=7 JobState=COMPLETING Reason=None Restarts=0", 0, STOPPED, STOPPED),  # cancelled
        ("JobId=7 JobState=CANCELLED Restarts=0", 0, STOPPED, STOPPED),
        ("", 1, STOPPED, AGAIN),
    ],
)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR2])
def test_told_to_stop(
    tmp_path: Path,
    stage: Units,
    commands: Commands,
    number: int,
    answer: str,
    code: int,
    told_to_end: int,
    told_that_time_ends: int,
) -> None:
    """Cancelled, it does not go on; where nobody knows, it does if its time ends. To make room it goes on later."""
    commands.answer("scontrol", answer, code=code)
    stage.act = interrupt(number)
    assert runner(tmp_path).run() == (told_to_end if number == signal.SIGTERM else told_that_time_ends)
    assert commands.asked("scontrol") == ["show job --oneliner 7_1"]
    assert [unit.id for unit in stage.plan()] == ["b", "c", "d"]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, ASK), (signal.SIGUSR2, AGAIN)])
def test_told_to_stop_where_slurm_cannot_be_asked(
    tmp_path: Path, stage: Units, commands: Commands, number: int, code: int
) -> None:
    """In a container without its commands: the batch script, which is outside, finds out what TERM means."""
    (commands.folder / "scontrol").unlink()
    stage.act = interrupt(number)
    assert runner(tmp_path).run() == code


def test_where_nothing_can_be_written_any_more_the_exit_code_still_says_so(
    tmp_path: Path, stage: Units, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Not that of a process that was killed, which would be tried again and again."""
    made = runner(tmp_path)

    def full(*words: object, **more: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(made.journal, "note", full)
    assert made.run() == FAILED
    assert "No space left on device" in capfd.readouterr().err


@pytest.mark.parametrize(("resumes", "first", "counted"), [(False, "b", 1), (False, "a", 0), (True, "b", 0)])
def test_a_unit_longer_than_the_time_limit_is_given_up(
    tmp_path: Path, stage: Units, resumes: bool, first: str, counted: int
) -> None:
    """If a whole limit went into it alone, and it does not go on where it was."""
    stage.act, stage.resumes_units = interrupt(signal.SIGUSR2), resumes
    made = runner(tmp_path, units=[first, "b"], minutes=10)
    made.notice.began -= 9 * 60
    assert made.run() == AGAIN
    known = deaths(tmp_path / "jobs", "b")
    assert len(known) == counted
    assert all("time limit of 10 min" in item and "raise cluster.time" in item for item in known)


def test_stages_are_begun_by_one_at_a_time(tmp_path: Path, stage: Units) -> None:
    stage.begun = False
    other = Claims(tmp_path / "jobs", task="6_0")
    other.take("+prepare")
    threading.Timer(0.3, other.give_back, ["+prepare"]).start()
    assert runner(tmp_path).run() == 0
    assert ("waiting", "+prepare") in events(tmp_path)
    other.close()


def test_other_ranks_of_a_stage_for_one_process_have_nothing_to_do(tmp_path: Path, stage: Units) -> None:
    stage.side_by_side = False
    assert runner(tmp_path, rank=1).run() == 0
    assert stage.log == []
