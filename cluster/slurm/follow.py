"""Following a submission until nothing of it waits or runs."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

from cluster.executors.base import Outcome
from cluster.jobs.deaths import given_up
from cluster.jobs.queue import QueueError, queued
from cluster.jobs.submissions import job_ids, submissions
from pipeline.progress import Bar, Progress
from stages.base import Stage, is_done

LOOK_SECONDS = 5.0
ASK_SECONDS = 20.0  # the queue is asked less often than the disk
GONE = 2  # answers in a row without a live job: between two attempts of a task the queue may not know it


def follow(stages: Mapping[str, Stage], jobs: Mapping[str, Path], progress: Progress) -> Outcome:
    """A bar for each stage, moved by its commit records, until all is done or no job is left.

    Args:
        stages: of the chain.
        jobs: link → folder of job records, of those that have one.
        progress: for the bars.
    """
    bars: dict[str, Bar] = {}
    shown: dict[str, int] = {}
    asked, gone = 0.0, 0
    try:
        while True:
            for name, stage in stages.items():
                _move(name, stage, bars, shown, progress)
            if all(is_done(stage) for stage in stages.values()):
                break
            if time.monotonic() - asked >= ASK_SECONDS:
                asked = time.monotonic()
                gone = 0 if _any_live(jobs) else gone + 1
                if gone >= GONE:
                    break
            time.sleep(LOOK_SECONDS)
    finally:
        for bar in bars.values():
            bar.close()
    lines: list[str] = []
    for name, stage in stages.items():
        if not is_done(stage):
            return Outcome(lines=tuple(lines), failed=_reasons(name, stage, jobs.get(name)))
        lines.extend(stage.summary())
    return Outcome(lines=tuple(lines))


def _move(name: str, stage: Stage, bars: dict[str, Bar], shown: dict[str, int], progress: Progress) -> None:
    status = stage.status()
    if status.total is None:
        return
    if name not in bars:
        bars[name] = progress.bar(name, status.total, "units", initial=status.done)
        shown[name] = status.done
    if status.done > shown[name]:
        bars[name].advance(status.done - shown[name])
        shown[name] = status.done


def _any_live(jobs: Mapping[str, Path]) -> bool:
    """Whether a job waits or runs; yes, where the queue does not answer."""
    try:
        ids = [job for folder in jobs.values() for job in job_ids(list(submissions(folder)))]
        return any(found.live for found in queued(ids).values())
    except QueueError:
        return True


def _reasons(name: str, stage: Stage, jobs: Path | None) -> dict[str, str]:
    failed = {**stage.status().failed, **(given_up(jobs) if jobs is not None else {})}
    found = {f"{name}, unit {unit}": reason for unit, reason in failed.items()}
    return found or {name: "no job of it is left and it is not done: `submit status` and `submit logs` say more"}
