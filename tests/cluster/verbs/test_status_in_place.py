"""``submit status`` while ``cluster=local`` works in another process, and after it has ended in one way or another."""

from __future__ import annotations

import errno
import json
import os
import re
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path

import pytest

from cluster.jobs.claims import FOLDER as CLAIMS
from cluster.jobs.claims import Claim, Claims
from cluster.jobs.in_place import FOLDER, AtWork
from cluster.jobs.journal import read_journal
from cluster.submit import main
from pipeline.processes import machine
from stages.base import Unit
from tests.cluster.verbs.conftest import Run


def unit(name: str) -> Unit:
    return Unit(id=name, what=f"tar {name}")


def in_place(run: Run, *lines: tuple[float, str, str]) -> None:
    """What a process noted: seconds ago, event, unit."""
    path = run.jobs("gather") / FOLDER / "h-1-1.jsonl"
    path.parent.mkdir(parents=True)
    plain = [{"time": time.time() - age, "event": event, "unit": name} for age, event, name in lines]
    path.write_text("".join(f"{json.dumps(line)}\n" for line in plain))


def notes(folder: Path) -> list[tuple[str, str | None, str | None]]:
    """What was noted in a stage's folder of job records."""
    events = [event for path in sorted((folder / FOLDER).iterdir()) for event in read_journal(path)]
    return [(event.event, event.unit, event.reason) for event in events]


def test_what_is_at_work_and_how_long_it_will_take(run: Run) -> None:
    run.done("gather", "0", "1", "2")
    done = [(600 - 200 * index, "done", str(index)) for index in range(3)]
    in_place(run, *[line for age, _, name in done for line in ((age + 150, "unit", name), (age, "done", name))])
    working = AtWork(run.jobs("gather"))
    working.begin(unit("3"))
    heading, gather, *lines = run.told()
    assert heading.split() == ["stage", "units", "samples", "running", "rate", "left", "folder"]
    assert re.split(r"  +", gather)[:6] == ["gather", "3 of 9", "30", "1", "14.4/h", "25 min"]  # three in 750 s
    assert lines == []
    run.done("gather", "3")
    working.end(unit("3"), None)
    assert run.look().stages[0].running == ()
    working.begin(unit("4"))
    working.end(unit("4"), "tar 4 is torn")
    working.close()
    assert run.told()[-1].endswith(", unit 4, in place: tar 4 is torn")


def test_a_process_that_was_killed_is_not_at_work(run: Run) -> None:
    run.done("gather", "0")
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    for name, pid in (("1", child.pid), ("2", os.getpid())):
        path = run.jobs("gather") / CLAIMS / f"{name}.0"
        path.parent.mkdir(parents=True, exist_ok=True)
        claim = Claim(unit=name, task="", restart=0, host="h", machine=machine(), pid=pid, token=name)
        path.write_text(json.dumps(asdict(claim)))
    assert [held.claim.unit for held in run.look().stages[0].running] == ["2"]


def test_a_unit_that_somebody_else_is_at_is_left_theirs(tmp_path: Path) -> None:
    first, second = AtWork(tmp_path), AtWork(tmp_path)
    first.begin(unit("1"))
    second.begin(unit("1"))
    second.end(unit("1"), None)
    second.close()
    assert [path.name for path in (tmp_path / CLAIMS).iterdir()] == ["1.0"]
    first.close("stopped")
    assert list((tmp_path / CLAIMS).iterdir()) == []
    assert sorted(notes(tmp_path)) == [
        *(("done", "1", None), ("dropped", "1", "stopped"), ("ended", None, "stopped")),
        *(("unit", "1", None), ("unit", "1", None)),
    ]


@pytest.mark.parametrize(
    ("setting", "ended"),
    [
        ("units=2", [("done", "1", None)]),
        ("failing=['1']", [("failed", "1", "toy/1: the tar is torn at byte 7. Pack it again.")]),
        ("interrupt='1'", [("dropped", "1", "stopped"), ("ended", None, "stopped")]),
        ("terminate='1'", [("done", "1", None)]),  # it has no safe point before its end
        ("broken=['1']", [(event, name, "RuntimeError: a bug") for event, name in (("dropped", "1"), ("ended", None))]),
    ],
)
def test_what_a_run_notes(house: Path, setting: str, ended: list[object]) -> None:
    words = ["stage=gather", "units=2", setting]
    if setting.startswith("broken"):
        with pytest.raises(RuntimeError):
            main(words)
    else:
        main(words)
    (jobs,) = Path("runs").glob("gather-*/jobs")
    begun = [("unit", "0", None), ("done", "0", None), ("unit", "1", None)]
    assert notes(jobs) == [*begun, *ended]
    assert list((jobs / CLAIMS).iterdir()) == []


def test_nothing_is_noted_where_there_is_no_place_for_it() -> None:
    working = AtWork(None)
    working.begin(unit("1"))
    working.end(unit("1"), None)
    working.close()


def test_what_cannot_be_noted_is_left_out_and_the_work_goes_on(house: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object, **named: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("cluster.jobs.journal.append_text", refuse)
    monkeypatch.setattr("cluster.progress.append_text", refuse)
    monkeypatch.setattr(Claims, "_create", refuse)
    assert main(["stage=gather", "units=2"]) == 0
    assert len(list(Path("runs").glob("gather-*/*.done"))) == 2
    assert main(["stage=gather", "units=3", "interrupt='1'"]) == 130  # and not the disk's refusal
