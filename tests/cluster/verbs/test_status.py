"""``submit status``: the disk says what is done, claims who is at work, and the queue the rest, if it answers."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest

from cluster.jobs import history, tasks
from cluster.jobs.cancelled import note_cancelled
from cluster.jobs.deaths import MOST, note_death
from cluster.jobs.history import History
from cluster.jobs.submissions import submissions
from cluster.jobs.table import plain
from pipeline.errors import UserError
from stages.base import Status
from tests.cluster.verbs.conftest import Run


@pytest.fixture
def busy(run: Run) -> Path:
    """Nine units: 0, 1 and 2 are done, 3 has failed, 4 and 5 are in work, the others wait; train waits for all."""
    run.done("gather", "0", "1", "2")
    first = run.submitted("gather", {"12": [["0", "1", "2", "3", "4"], ["5", "6"], ["7", "8"]]})
    second = run.submitted("train", {"13": [(0, 1)]}, after=["12"])
    run.journal(
        first,
        "12_0",
        *((700, "started"), (600, "unit", "0"), (500, "done", "0"), (500, "unit", "1"), (300, "done", "1")),
        *((300, "unit", "2"), (60, "done", "2"), (60, "unit", "3"), (50, "failed", "3", "torn\nat byte 7")),
        (50, "unit", "4"),
    )
    run.journal(first, "12_1", (45, "started"), (40, "unit", "5"))
    run.failed("gather", "3", reason="torn\nat byte 7")
    run.claim("gather", "4", task="12_0", age=3)
    run.claim("gather", "5", task="12_1", age=4)
    run.claim("gather", "6", task="11_7", age=900)
    run.claim("gather", "+submit", task="")
    run.queue(
        ("12_0", "RUNNING", "None", first),
        ("12_1", "RUNNING", "None", first),
        ("12_2", "PENDING", "Priority", first),
        ("13", "PENDING", "Dependency", second),
        ("99", "RUNNING", "None", Path("/of/another/run")),
    )
    return first


def test_a_table_of_what_is_on_the_way(run: Run, busy: Path) -> None:
    heading, gather, train, empty, *lines = run.told()
    assert heading.split() == ["stage", "units", "samples", "failed", "running", "queued", "rate", "left", "folder"]
    assert re.split(r"  +", gather)[:7] == ["gather", "3 of 9", "30", "1", "2", "3", "18/h"]  # three in ten minutes
    assert re.split(r"  +", gather)[7] == "17 min"  # five that have not failed
    assert re.split(r"  +", train)[:3] == ["train", "not started", "?"]
    assert empty == ""
    assert lines == [
        "gather: job 12_[0-2]: RUNNING 2, PENDING 1 (Priority)",
        "gather: unit 3 failed: torn",
        "train: job 13: PENDING (Dependency)",
    ]


def test_json_has_all_of_it(run: Run, busy: Path) -> None:
    gather, train = json.loads(json.dumps(plain(run.look())))
    assert (gather["done"], gather["total"], gather["samples"], gather["queued"]) == (3, 9, 30, 3)
    assert gather["failed"] == {"3": "torn\nat byte 7"}
    assert [(item["unit"], item["task"]) for item in gather["running"]] == [("4", "12_0"), ("5", "12_1")]
    assert gather["units_a_second"] == pytest.approx(3 / 600, rel=0.05)
    assert gather["seconds_left"] == pytest.approx(1000, rel=0.05)
    assert gather["last_error"]["unit"] == "3"
    [job] = gather["jobs"]
    assert job["submission"] == str(busy)
    assert job["tasks"]["12_2"] == {"state": "PENDING", "live": True, "reason": "Priority", "nodes": "n1"}
    assert (train["queued"], train["total"]) == (None, None)


@pytest.mark.parametrize("how", ["absent", "fails", "slow"])
def test_without_an_answer_the_records_are_told(
    run: Run, busy: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks, "PATIENCE_SECONDS", 0.2)
    if how == "absent":
        (run.commands.folder / "squeue").unlink()
    elif how == "fails":
        run.commands.answer("squeue", code=1, error="slurm_load_jobs error: Unable to contact slurm controller\n")
    else:
        run.commands.answer("squeue", script="exec sleep 20")
    _, gather, _, _, *lines = run.told()
    assert re.split(r"  +", gather)[:6] == ["gather", "3 of 9", "30", "1", "2", "3"]
    reason = {
        "absent": "there is no squeue here: this is no machine of a SLURM cluster",
        "fails": "squeue failed: slurm_load_jobs error: Unable to contact slurm controller",
        "slow": "squeue did not answer within 0 s",
    }[how]
    assert lines == [
        "gather: job 12_[0-2]: begun 2, not begun 1",
        "gather: unit 3 failed: torn",
        "train: job 13: not begun",
        f"squeue does not answer; states are as of the records ({reason})",
    ]


def test_a_run_in_place_asks_nobody(run: Run) -> None:
    run.done("gather", *"012345678")
    heading, row = run.told()
    assert heading.split() == ["stage", "units", "samples", "folder"]
    assert re.split(r"  +", row) == ["gather", "9 of 9", "90", str(run.stages["gather"].folder)]
    assert run.commands.asked("squeue") == []


def test_the_queue_is_asked_once_for_all_stages(run: Run, busy: Path) -> None:
    run.told()
    [question] = run.commands.asked("squeue")
    assert "--array" in question


def test_what_accounting_says_makes_no_unit_done_or_undone(run: Run) -> None:
    run.done("gather", "0")
    folder = run.submitted("gather", {"12": [["0"], ["1"]]})
    run.log(folder, "12_0", "")
    run.commands.answer("squeue")
    run.commands.answer("sacct", "12_0|NODE_FAIL\n12_1|COMPLETED\n")
    _, gather, _, line = run.told()
    assert re.split(r"  +", gather)[:2] == ["gather", "1 of 9"]
    assert line == (
        "gather: its jobs have ended (NODE_FAIL 1, COMPLETED 1) and it is not done: see submit logs; "
        "the same command goes on"
    )


def test_another_job_of_the_same_number_is_not_ours(run: Run) -> None:
    run.submitted("gather", {"12": [["0", "1"]]})
    run.queue(("12", "RUNNING", "None", Path("/of/another/run/20250101T000000-abc")))
    _, gather, _, line = run.told()
    assert "running" not in gather
    assert "its jobs have ended and it is not done" in line


def test_a_stage_that_was_cancelled_says_why_in_one_line(run: Run) -> None:
    first = run.submitted("gather", {"12": [["0"], ["1"]]})
    run.submitted("train", {"13": [(0, 1)]}, after=["12"])
    run.submitted("evaluate", {"14": [(0, 1)]}, after=["13"])
    run.journal(first, "12_0", (9, "unit", "0"), (8, "failed", "0", "torn\nat byte 7"), (8, "ended", None, "torn"))
    run.failed("gather", "0")
    run.commands.answer("squeue")
    run.commands.answer("sacct", "12_0|FAILED\n12_1|COMPLETED\n")
    assert run.told()[5:] == [
        "gather: unit 0 failed: torn",
        "gather: its jobs have ended (FAILED 1, COMPLETED 1) and it is not done: see submit logs; the same command "
        "goes on",
        "train: cancelled before it began, because gather, unit 0, failed: torn; the same command goes on",
        "evaluate: cancelled before it began, because train was cancelled; the same command goes on",
    ]
    for folder in submissions(run.jobs("train")):
        note_cancelled(folder.folder)
    assert re.match(r"train: cancelled by \w+ at \d\d:\d\d:\d\d; the same command goes on", run.told()[7])


def test_a_unit_that_is_given_up_has_failed(run: Run) -> None:
    run.done("gather", "8")
    folder = run.submitted("gather", {"12": [["0", "1"]]})
    for _ in range(MOST):
        note_death(run.jobs("gather"), "1", "task 12 on h died")
    note_death(run.jobs("gather"), "0", "task 12 on h died")
    run.journal(folder, "12", (9, "unit", "0", "task 12 on h died"))
    run.queue(("12", "RUNNING", "None", folder))
    _, gather, _, job, failed, last = run.told()
    assert re.split(r"  +", gather)[1:5] == ["1 of 9", "10", "1", "1"]
    assert job == "gather: job 12: RUNNING"
    assert failed.startswith("gather: unit 1 failed: 3 processes died while they were at it")
    assert re.fullmatch(r"gather: last error at [\d:]+, unit 0, task 12, begun again: task 12 on h died", last)


def test_a_unit_that_is_tried_again_is_queued_and_not_failed(run: Run) -> None:
    run.failed("gather", "0")
    folder = run.submitted("gather", {"12": [["0"]]})
    run.queue(("12", "PENDING", "Resources", folder))
    heading, gather, _, job = run.told()
    assert heading.split() == ["stage", "units", "queued", "folder"]
    assert re.split(r"  +", gather)[1:3] == ["0 of 9", "1"]
    assert job == "gather: job 12: PENDING (Resources)"


def test_shares_divide_what_is_missing(run: Run) -> None:
    run.done("gather", "0")
    folder = run.submitted("gather", {"12": [(0, 4), (1, 4), (2, 4), (3, 4)]})
    run.queue(*((f"12_{k}", "PENDING", "None", folder) for k in (0, 1)))
    gather = run.told()[1]
    assert re.split(r"  +", gather)[1:4] == ["1 of 9", "10", "4"]


def test_a_damaged_record_is_named_and_the_other_stages_are_told(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def damaged() -> Status:
        raise UserError("run.json: the record is damaged")

    run.done("gather", "0")
    run.done("train", "0")
    monkeypatch.setattr(run.stages["gather"], "status", damaged)
    _, gather, train, _, line = run.told()
    assert re.split(r"  +", gather)[1] == "?"
    assert re.split(r"  +", train)[1] == "1 of 9"
    assert line == "gather: run.json: the record is damaged"


def test_many_failures_are_counted(run: Run) -> None:
    run.failed("gather", *"012345678")
    lines = run.told()
    assert lines[-1] == "gather: … and 4 more failed; --json lists all of them"
    assert sum("failed: torn" in line for line in lines) == 5


# -- rates


def of(run: Run, *journals: tuple[str, tuple[float, ...]]) -> History:
    """Of tasks whose first unit began long ago, each with the ages of its commits."""
    folder = run.submitted("gather", {task: [["0"]] for task, _ in journals})
    for task, ages in journals:
        run.journal(folder, task, (10_000, "unit", "0"), *((age, "done", str(age)) for age in ages))
    return History(list(submissions(run.jobs("gather"))))


@pytest.mark.parametrize(
    ("ages", "expected"),
    [
        ((), None),
        ((100, 200, 1700), 3 / 1800),  # in the last half hour
        ((100, 200, 1700, 1900, 9000), 3 / 1800),
        ((100, 200, 1900, 9000), 4 / 10_000),  # too few in it: since the work began
        ((9000,), 1 / 10_000),
    ],
)
def test_the_rate_is_that_of_late(run: Run, ages: tuple[float, ...], expected: float | None) -> None:
    found = of(run, ("12", ages[::2]), ("13", ages[1::2])).a_second(time.time())
    assert found == (None if expected is None else pytest.approx(expected, rel=0.01))


def test_only_the_journals_that_were_written_last_are_read(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "MOST", 2)
    found = of(run, ("12", (100, 900)), ("13", (200, 800)), ("14", (1000, 1100)))
    opened: list[Path] = []
    original = history.read_journal
    monkeypatch.setattr(history, "read_journal", lambda path: opened.append(path) or original(path))  # type: ignore[func-returns-value]
    assert found.a_second(time.time()) == pytest.approx(4 / 1000, rel=0.01)
    assert {path.name for path in opened} == {"12.0.jsonl", "13.0.jsonl"}
    assert found.began == {"12": False, "13": False, "14": True}


def test_rate_of_a_node_whose_clock_is_ahead(run: Run) -> None:
    """Ten minutes: what it did seems to be still to come."""
    folder = run.submitted("gather", {"12": [["0", "1", "2"]]})
    ages = ((0, "unit"), (100, "done"), (100, "unit"), (200, "done"), (200, "unit"), (300, "done"))
    run.journal(folder, "12", *((300 - 600 - at, event, str(at)) for at, event in ages))
    found = History(list(submissions(run.jobs("gather")))).a_second(time.time())
    assert found == pytest.approx(3 / 300, rel=0.05)


def test_a_task_that_goes_on_where_the_clock_is_another_one(run: Run) -> None:
    """What stands last in its journal was last, whatever its time."""
    folder = run.submitted("gather", {"12": [["0"]], "13": [["1"]]})
    run.journal(
        folder, "12", (-600, "started"), (300, "started"), (290, "unit", "0"), (200, "done", "0"), (190, "ended")
    )
    run.journal(folder, "13", (100, "started"))
    found = History(list(submissions(run.jobs("gather"))))
    assert [told.task for told in found.unended()] == ["13"]
    assert found.began == {"12": True, "13": False}
