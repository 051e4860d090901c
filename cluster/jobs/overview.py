"""How far stages are: what is done by their commit records, who is at work by the claims, and last what the queue says.

:func:`look` may be called again and again, with the same :class:`~cluster.jobs.tasks.Queue`.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from cluster.jobs import in_place
from cluster.jobs.claims import STALE_SECONDS, Held, has_died, held_now
from cluster.jobs.deaths import given_up
from cluster.jobs.folder import folder_of
from cluster.jobs.history import History
from cluster.jobs.notes import why_nothing_goes_on
from cluster.jobs.now import Overview, StageNow
from cluster.jobs.queue import Queued
from cluster.jobs.submissions import Submitted, submissions
from cluster.jobs.tasks import Queue, Task, tasks_of
from pipeline.errors import UserError
from stages.base import Stage, Status


def look(
    stages: Mapping[str, Stage],
    *,
    shared: Path | None = None,
    stale_seconds: float = STALE_SECONDS,
    queue: Queue | None = None,
) -> Overview:
    """How far stages are. What is done is never in doubt, whatever the scheduler says.

    Args:
        stages: by the words that choose them.
        shared: ``cluster.folder``.
        stale_seconds: ``cluster.stale_seconds``.
        queue: that was asked before.
    """
    queue = queue or Queue()
    folders = {link: folder_of(stage, shared) for link, stage in stages.items()}
    records = {link: list(submissions(folder)) if folder else [] for link, folder in folders.items()}
    known = queue.ask(submitted for found in records.values() for submitted in found)
    answer = None if queue.silence else known
    now = [_stage(link, stage, folders[link], records[link], answer, stale_seconds) for link, stage in stages.items()]
    if answer is not None:
        now = [replace(item, note=why_nothing_goes_on(item, now, queue)) for item in now]
    return Overview(stages=tuple(now), silence=queue.silence)


def _stage(
    link: str,
    stage: Stage,
    folder: Path | None,
    found: Sequence[Submitted],
    answer: Mapping[str, Queued] | None,
    stale_seconds: float,
) -> StageNow:
    try:
        status, problem = stage.status(), None
    except UserError as error:
        status, problem = Status(done=0, total=None), str(error)
    if folder is None or not folder.is_dir():
        return StageNow(link=link, stage=stage, status=status, problem=problem, failed=status.failed)
    history = History(found, in_place=folder / in_place.FOLDER)
    tasks = tasks_of(found, answer, history.began)
    running = {held.claim.unit: held for held in fresh_claims(folder, stale_seconds) if is_unit(held.claim.unit)}
    gave_up = {unit: reason for unit, reason in given_up(folder).items() if unit not in status.done_ids}
    waiting = _waiting(tasks, history) - status.done_ids - running.keys() - gave_up.keys()
    failed = {unit: reason for unit, reason in {**status.failed, **gave_up}.items() if unit not in waiting}
    now = StageNow(
        link=link,
        stage=stage,
        status=status,
        problem=problem,
        running=tuple(running.values()),
        failed={unit: reason for unit, reason in failed.items() if unit not in running},
        a_second=history.a_second(time.time()),
        tasks=tuple(tasks),
    )
    return replace(
        now,
        queued=_queued(now, waiting),
        last_error=None if now.done else next(reversed(history.errors(status.done_ids)), None),
    )


def fresh_claims(folder: Path, stale_seconds: float) -> list[Held]:
    """The claims whose holders are at work: their hearts beat, and here they can be seen."""
    found = held_now(folder, _clock(folder))
    return [held for held in found if held.age < stale_seconds and not has_died(held.claim)]


def is_unit(name: str) -> bool:
    """Whether a claim or a list of deaths is of a unit, and not of something that only one process may do."""
    return not name.startswith("+")


def _waiting(tasks: Iterable[Task], history: History) -> set[str]:
    """Units that tasks in the queue name and have not failed at."""
    live = [task for task in tasks if task.live]
    return {unit for task in live for unit in task.work.units or () if (task.id, unit) not in history.failed}


def _queued(now: StageNow, waiting: set[str]) -> int | None:
    """How many units wait: those that tasks name, and the part of what is missing that others have a share of."""
    shares = {task.work.share for task in now.tasks if task.live and task.work.units is None}
    if not shares:
        return len(waiting)
    if now.status.total is None:
        return None
    missing = now.status.total - now.status.done - len(now.running) - len(now.failed)
    return max(0, len(waiting), round(missing * sum(1 / count for _, count in shares)))


def _clock(folder: Path) -> float:
    """The time as the file system that holds the claims tells it."""
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".now-") as file:
            return os.fstat(file.fileno()).st_mtime
    except OSError:  # somebody else's folder
        return time.time()
