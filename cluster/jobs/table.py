"""An overview as a small table with the lines that belong to it, and as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from cluster.jobs.claims import describe
from cluster.jobs.history import Told
from cluster.jobs.notes import clock, first_line
from cluster.jobs.now import Overview, StageNow
from cluster.jobs.tasks import GONE, Task

SHOWN = 5  # failed units of a stage
HEADINGS = ("stage", "units", "samples", "quarantined", "failed", "running", "queued", "rate", "left", "folder")


def table(overview: Overview) -> str:
    """The table, columns without content left out, and what is to be said of single stages below it."""
    rows = [HEADINGS, *(_row(now) for now in overview.stages)]
    columns = [column for column in zip(*rows, strict=True) if any(column[1:])]
    widths = [max(map(len, column)) for column in columns]
    lines = [_aligned(row, widths) for row in zip(*columns, strict=True)]
    said = [f"{now.link}: {line}" for now in overview.stages for line in _lines(now)]
    if overview.silence is not None:
        said.append(f"squeue does not answer; states are as of the records ({first_line(overview.silence)})")
    return "\n".join([*lines, *([""] if said else []), *said])


def _aligned(row: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()


def _row(now: StageNow) -> tuple[str, ...]:
    status, queued = now.status, "?" if now.queued is None else f"{now.queued:,}"
    return (
        now.link,
        _units(now),
        f"{status.samples:,}" if status.samples else "",
        f"{status.quarantined:,}" if status.quarantined else "",
        f"{len(now.failed):,}" if now.failed else "",
        f"{len(now.running):,}" if now.running else "",
        "" if queued == "0" else queued,
        _rate(now),
        "" if now.seconds_left is None else duration(now.seconds_left),
        str(now.stage.folder),
    )


def _units(now: StageNow) -> str:
    status = now.status
    if now.problem is not None:
        return "?"
    if status.total is None:
        return f"{status.done:,}" if status.done else "not started"
    return f"{status.done:,} of {status.total:,}"


def _rate(now: StageNow) -> str:
    """Of units in a minute or an hour, whatever is a number to look at; and of samples."""
    if not now.running or not now.a_second:
        return ""
    units = f"{60 * now.a_second:.3g}/min" if 60 * now.a_second >= 1 else f"{3600 * now.a_second:.3g}/h"
    samples = samples_a_second(now)
    return f"{units}, {samples:,.0f} samples/s" if samples and samples >= 1 else units


def samples_a_second(now: StageNow) -> float | None:
    """What the rate of units means in samples, by those that are done."""
    if not now.a_second or not now.status.done:
        return None
    return now.a_second * now.status.samples / now.status.done


def duration(seconds: float) -> str:
    """A time span for a person."""
    for size, name in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 1.5 * size:
            return f"{seconds / size:.1f} {name}" if seconds < 10 * size else f"{seconds / size:.0f} {name}"
    return f"{seconds:.0f} s"


def _lines(now: StageNow) -> Iterator[str]:
    if now.problem is not None:
        yield now.problem
    yield from job_lines(now.tasks)
    for unit, reason in list(now.failed.items())[:SHOWN]:
        yield f"unit {unit} failed: {first_line(reason)}"
    if len(now.failed) > SHOWN:
        yield f"… and {len(now.failed) - SHOWN:,} more failed; --json lists all of them"
    if now.last_error is not None and now.last_error.event.unit not in now.failed:
        yield _error_line(now.last_error)
    if now.note is not None:
        yield now.note


def _error_line(told: Told) -> str:
    event = told.event
    unit = f", unit {event.unit}" if event.unit else ""
    again = ", begun again" if event.event == "unit" else ""
    who = f"task {told.task}" if told.task else "in place"
    return f"last error at {clock(event.time)}{unit}, {who}{again}: {first_line(event.reason or '')}"


def job_lines(tasks: Sequence[Task]) -> Iterator[str]:
    """``job 1234_[0-9]: RUNNING 4, PENDING 6 (Priority)``: each job of which a task is live."""
    for job in dict.fromkeys(task.job for task in tasks if task.live):
        mine = [task for task in tasks if task.job == job]
        array = mine[0].id != job
        name = f"{job}_[0-{len(mine) - 1}]" if array and len(mine) > 1 else mine[0].id
        yield f"job {name}: {', '.join(_states(mine))}"


def _states(tasks: Sequence[Task]) -> Iterator[str]:
    """How many are in which state, and why they wait where all of them do for the same reason."""
    for state, count in sorted(Counter(task.state for task in tasks).items(), key=lambda item: item[0] == GONE):
        reasons = {task.reason for task in tasks if task.state == state} - {"", "None"}
        why = f" ({', '.join(sorted(reasons))})" if reasons and state != "RUNNING" else ""
        yield f"{'ended' if state == GONE else state}{f' {count}' if len(tasks) > 1 else ''}{why}"


def plain(overview: Overview) -> list[dict[str, Any]]:
    """Everything, for programs."""
    return [_plain(now) for now in overview.stages]


def _plain(now: StageNow) -> dict[str, Any]:
    status = now.status
    return {
        "stage": now.link,
        "folder": str(now.stage.folder),
        "done": status.done,
        "total": status.total,
        "samples": status.samples,
        "quarantined": status.quarantined,
        "failed": dict(now.failed),
        "running": [
            {"unit": held.claim.unit, "by": describe(held.claim), "task": held.claim.task, "heartbeat_age": held.age}
            for held in now.running
        ],
        "queued": now.queued,
        "units_a_second": now.a_second,
        "samples_a_second": samples_a_second(now),
        "seconds_left": now.seconds_left,
        "jobs": [_job(job, now.tasks) for job in dict.fromkeys(task.job for task in now.tasks)],
        "last_error": None if now.last_error is None else _error(now.last_error),
        "note": now.note,
        "problem": now.problem,
    }


def _job(job: str, tasks: Sequence[Task]) -> dict[str, Any]:
    mine = [task for task in tasks if task.job == job]
    submitted = mine[0].submitted
    return {
        "job": job,
        "submission": str(submitted.folder),
        "submitted": submitted.time,
        "user": submitted.user,
        "host": submitted.host,
        "after": list(submitted.after),
        "tasks": {
            task.id: {"state": task.state, "live": task.live, "reason": task.reason, "nodes": task.nodes}
            for task in mine
        },
    }


def _error(told: Told) -> dict[str, Any]:
    event = told.event
    about = {"time": event.time, "unit": event.unit, "task": told.task, "host": event.host, "node": event.node}
    return {**about, "reason": event.reason}
