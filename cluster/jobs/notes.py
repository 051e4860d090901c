"""Why nothing goes on although something is missing, in one line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime

from cluster.jobs.cancelled import read_cancelled
from cluster.jobs.now import StageNow
from cluster.jobs.submissions import Submitted
from cluster.jobs.tasks import Queue


def why_nothing_goes_on(now: StageNow, others: Sequence[StageNow], queue: Queue) -> str | None:
    """The line; None where something does, or all is done, or no job was ever submitted.

    Args:
        now: the stage.
        others: the stages that were looked at with it, in the order of the chain.
        queue: to ask how jobs ended.
    """
    last = _last(now)
    if last is None or now.done or now.running or any(task.live for task in now.tasks):
        return None
    if cancelled := read_cancelled(last.folder):
        return f"cancelled by {cancelled.user} at {clock(cancelled.time)}; the same command goes on"
    mine = [task for task in now.tasks if task.submitted is last]
    if last.after and not any(task.begun for task in mine):
        return f"cancelled before it began{_because(last, others, queue)}; the same command goes on"
    if now.failed and len(now.failed) >= (now.status.total or 0) - now.status.done:
        return None  # each of them is named
    return f"its jobs have ended{_states(last, queue)} and it is not done: see submit logs; the same command goes on"


def _states(submitted: Submitted, queue: Queue) -> str:
    """`` (TIMEOUT 2, FAILED 1)``: what accounting says; empty where it does not answer."""
    said = Counter(queue.ended([job.id for job in submitted.jobs]).values())
    return f" ({', '.join(f'{state} {count}' for state, count in said.most_common())})" if said else ""


def _because(last: Submitted, others: Sequence[StageNow], queue: Queue) -> str:
    """What was the matter with the stage whose jobs a submission waited for; empty where nothing is any more."""
    awaited = [one for one in others if {task.job for task in one.tasks} & set(last.after)]
    before = next((one for one in awaited if not one.done), awaited[0] if awaited else None)
    jobs = f"job {', '.join(last.after)}"
    if before is None:
        return f", because {jobs} did not end well"
    if before.done:
        return ""
    submitted = _last(before)
    assert submitted is not None, "it has tasks"
    if before.failed:
        unit, reason = next(iter(before.failed.items()))
        what = (
            f"{len(before.failed)} units of {before.link}" if len(before.failed) > 1 else f"{before.link}, unit {unit},"
        )
        return f", because {what} failed: {first_line(reason)}"
    if before.last_error is not None:
        return f", because {before.link} failed: {first_line(before.last_error.event.reason or '')}"
    if read_cancelled(submitted.folder) or (submitted.after and not any(task.begun for task in before.tasks)):
        return f", because {before.link} was cancelled"
    return f", because {jobs} of {before.link} did not end well{_states(submitted, queue)}"


def _last(now: StageNow) -> Submitted | None:
    """The last submission."""
    return now.tasks[-1].submitted if now.tasks else None


def first_line(text: str) -> str:
    """Of a reason that may have several."""
    return (text.strip().splitlines() or [""])[0]


def clock(seconds: float) -> str:
    """A time for a person: that of the day, and the date where it is not today."""
    time = datetime.fromtimestamp(seconds).astimezone()
    return f"{time:%H:%M:%S}" if time.date() == datetime.now().astimezone().date() else f"{time:%Y-%m-%d %H:%M}"
