"""What is written of submissions, journals and deaths is read again; what a crash tore is passed over."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.jobs.deaths import MOST, deaths, forget_deaths, given_up, note_death
from cluster.jobs.journal import Journal, journal_path, read_journal
from cluster.jobs.submissions import RECORD, Job, Submitted, Work, job_ids, read_submission, submissions
from stages.base import Unit

IDS = st.lists(st.text("0123456789abc-", min_size=1, max_size=6), unique=True, max_size=40)


def units(ids: list[str]) -> list[Unit]:
    return [Unit(id=name, what=name) for name in ids]


@given(IDS, st.integers(1, 9))
def test_shares_divide_what_is_missing(ids: list[str], count: int) -> None:
    """Each unit belongs to one share, whatever else is missing; order is kept."""
    parts = [Work(share=(k, count)).of(units(ids)) for k in range(count)]
    found = [unit.id for part in parts for unit in part]
    assert sorted(found) == sorted(ids)
    for part in parts:
        assert [unit.id for unit in part] == [name for name in ids if name in {unit.id for unit in part}]
    fewer = ids[1:]
    for k, part in enumerate(parts):
        assert [u.id for u in Work(share=(k, count)).of(units(fewer))] == [u.id for u in part if u.id in fewer]


def test_named_units_that_are_still_missing(tmp_path: Path) -> None:
    work = Work(units=("c", "a", "b"))
    assert [unit.id for unit in work.of(units(["a", "c", "d"]))] == ["c", "a"]


def submitted(folder: Path, **fields: object) -> Submitted:
    values = {"stage": "cache", "command": "submit", "host": "login", "user": "me", "time": 1.5, "after": ("3",)}
    return Submitted(folder=folder, **{**values, **fields})  # type: ignore[arg-type]


def test_a_submission_is_read_as_it_was_written(tmp_path: Path) -> None:
    jobs = (
        Job(id="12", array=True, work=(Work(units=("a", "b")), Work(units=("c",)))),
        Job(id="13", array=False, work=(Work(share=(0, 4)),)),
    )
    first = submitted(tmp_path / "20260101T000000-a", jobs=jobs, code="snapshot 12")
    second = submitted(tmp_path / "20260101T000001-b")
    for one in (second, first):
        one.write()
    assert read_submission(first.folder) == first
    assert list(submissions(tmp_path)) == [first, second]
    assert job_ids([first, second]) == ["12", "13"]
    assert jobs[0].tasks() == {"12_0": jobs[0].work[0], "12_1": jobs[0].work[1]}
    assert jobs[1].tasks() == {"13": jobs[1].work[0]}


@pytest.mark.parametrize("damage", ["", "{}", "[]", '{"jobs": 3}'])
def test_a_damaged_submission_is_passed_over(tmp_path: Path, damage: str) -> None:
    whole = submitted(tmp_path / "b")
    whole.write()
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / RECORD).write_text(damage)
    assert list(submissions(tmp_path)) == [whole]
    with pytest.raises(ValueError, match=r"damaged|Expecting"):
        read_submission(tmp_path / "a")


def test_a_journal_survives_a_torn_line(tmp_path: Path) -> None:
    path = journal_path(tmp_path, "12_0", 0)
    for restart in (0, 1):
        journal = Journal(path, host="h", node="n1", restart=restart)
        journal.note("unit", "000001")
        journal.note("failed", "000001", "broken at byte 7: «ä»\nsecond line")
        with path.open("a") as file:
            file.write('{"time": 12, "ev' if restart else '{"nonsense": 1}\n[]\n')
    events = list(read_journal(path))
    assert [(event.event, event.unit, event.restart) for event in events] == [
        ("unit", "000001", 0),
        ("failed", "000001", 0),
        ("unit", "000001", 1),
        ("failed", "000001", 1),
    ]
    assert events[1].reason == "broken at byte 7: «ä»\nsecond line"


def test_a_unit_is_given_up_after_its_last_death(tmp_path: Path) -> None:
    for count in range(1, MOST):
        assert len(note_death(tmp_path, "u", f"task {count} died")) == count
    assert given_up(tmp_path) == {}
    note_death(tmp_path, "u", "task 3 on n2 died")
    [(unit, reason)] = given_up(tmp_path).items()
    assert unit == "u"
    assert "task 3 on n2 died" in reason
    assert "submit retry" in reason
    forget_deaths(tmp_path, "u")
    forget_deaths(tmp_path, "u")
    assert deaths(tmp_path, "u") == []
    assert given_up(tmp_path) == {}
