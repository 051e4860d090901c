"""``submit logs``: the right file, and its last lines."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.jobs import logs
from cluster.jobs.blame import failures, of_unit
from cluster.jobs.history import History
from cluster.jobs.logs import last_lines, of_task
from cluster.jobs.submissions import submissions
from tests.cluster.verbs.conftest import Run


@given(text=st.text(alphabet="ab\nä", max_size=200), count=st.integers(1, 9), block=st.integers(1, 30))
def test_last_lines_are_those_of_the_whole_file(
    text: str, count: int, block: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("log") / "log"
    path.write_bytes(text.encode())
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(logs, "BLOCK", block)
        assert last_lines(path, count) == text.splitlines()[-count:]


def test_of_a_large_file_the_end_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "BLOCK", 100)
    monkeypatch.setattr(logs, "LONGEST", 1000)
    (tmp_path / "log").write_bytes(b"x" * 50_000 + b"\xff\nend")
    shown = last_lines(tmp_path / "log", 5)
    assert shown[-1] == "end"
    assert len(shown[0]) <= 1100


@pytest.fixture
def history(run: Run) -> History:
    """Task 0 failed at unit 1, task 1 at unit 3 which was done later, task 2 died, task 3 works, job 13 never began."""
    first = run.submitted("gather", {"12": [["0", "1"], ["2", "3"], ["4"], ["5"]], "13": [["6"]]})
    second = run.submitted("gather", {"14": [["3"]]})
    torn = (300.0, "failed", "1", "torn at byte 7")
    run.journal(first, "12_0", (400, "unit", "0"), (350, "done", "0"), torn, (299, "ended", None, "torn at byte 7"))
    run.journal(first, "12_1", (350, "unit", "3"), (340, "failed", "3", "too many bad images"))
    run.journal(first, "12_2", (320, "started"), (310, "unit", "4"))
    run.journal(first, "12_3", (320, "started"), (250, "unit", "5"))
    run.journal(second, "14", (200, "unit", "3"), (190, "done", "3"), (180, "ended"))
    for task in ("12_0", "12_1", "12_2", "12_3"):
        run.log(first, task, f"errors of {task}\n", age=280)
    run.log(first, "13", "bash: no such module\n", age=290)
    run.log(second, "14", "")
    run.log(second, "14", "progress\n", kind="out")
    return History(list(submissions(run.jobs("gather"))))


def test_what_failed_and_was_not_made_good_the_most_recent_last(history: History) -> None:
    found = failures(history, {"0", "3"}, {"12_3"}, time.time() - 60)
    assert [(log.task, log.why) for log in found] == [
        ("12_2", "no word since it began 4"),
        ("12_0", "unit 1: failed: torn at byte 7"),
        ("13", "ended before it could begin"),
    ]
    assert [log.path.read_text() for log in found[:2]] == ["errors of 12_2\n", "errors of 12_0\n"]


def test_who_began_a_moment_ago_is_not_blamed(history: History) -> None:
    found = failures(history, {"0", "3"}, {"12_3"}, time.time() - 900)
    assert [log.task for log in found] == ["12_0"]


def test_logs_of_a_unit_are_those_of_all_who_were_at_it(history: History) -> None:
    assert [(log.task, log.why) for log in of_unit("3", history)] == [
        ("12_1", "unit 3: failed: too many bad images"),
        ("14", "unit 3: done"),
    ]
    assert of_unit("14", history) == []


def test_logs_of_a_task_and_of_a_job(run: Run, history: History) -> None:
    found = list(submissions(run.jobs("gather")))
    assert [log.task for log in of_task("12_1", found)] == ["12_1"]
    assert {log.task for log in of_task("12", found)} == {"12_0", "12_1", "12_2", "12_3"}
    [log] = of_task("14", found)
    assert log.path.read_text() == "progress\n"
    assert of_task("1", found) == []
    assert of_task("15", found) == []


def test_ranks_have_logs_of_their_own(run: Run) -> None:
    folder = run.submitted("train", {"30": [["heads"]]})
    for rank in (0, 1):
        run.journal(folder, "30", (90, "started"), (80, "ended", "heads", f"rank {rank} broke"), rank=rank)
        run.log(folder, "30", f"rank {rank}\n", rank=rank)
    found = failures(History(list(submissions(run.jobs("train")))), set(), set(), time.time())
    assert [(log.rank, log.path.read_text()) for log in found] == [(0, "rank 0\n"), (1, "rank 1\n")]
