"""The tasks of a stage's jobs: what each is to do, as recorded, and how it is, as the scheduler says."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cluster.jobs.queue import Queued, QueueError, ended, queued
from cluster.jobs.submissions import Submitted, Work, job_ids

#: States that are not SLURM's words: the queue does not know the task any more; and, where it does not answer, what
#: the records tell.
GONE, ENDED, BEGUN, WAITING = "gone", "ended", "begun", "not begun"
ASK_SECONDS = 20.0  # between two questions of one who looks all the time
PATIENCE_SECONDS = 10.0


@dataclass(frozen=True, kw_only=True)
class Task:
    """One task, now.

    Attributes:
        id: ``123`` or ``123_4``.
        job: ``123``.
        submitted: the submission that it is of.
        work: what it is to do.
        state: SLURM's word, or one of those above.
        reason: why it waits, SLURM's word.
        nodes: where it runs.
        live: whether it will still do something.
        begun: whether a process of it has ever started.
    """

    id: str
    job: str
    submitted: Submitted
    work: Work
    state: str
    reason: str = ""
    nodes: str = ""
    live: bool
    begun: bool


class Queue:
    """Asks the scheduler for all jobs at once, and again only after a while.

    Attributes:
        silence: why there is no answer; None: there is one.
    """

    def __init__(self) -> None:
        self.silence: str | None = None
        self._known: dict[str, Queued] = {}
        self._asked: tuple[float, frozenset[str]] | None = None
        self._ended: dict[tuple[str, ...], Mapping[str, str]] = {}

    def ask(self, found: Iterable[Submitted]) -> Mapping[str, Queued]:
        """Task id → what it says of it, for the jobs of all submissions; nothing where there is no answer."""
        found = list(found)
        wanted, users = frozenset(job_ids(found)), {submitted.user for submitted in found}
        if self._asked is None or self._asked[1] != wanted or time.monotonic() - self._asked[0] >= ASK_SECONDS:
            try:
                self._known = queued(sorted(wanted), users=users, timeout=PATIENCE_SECONDS)
                self.silence = None
            except QueueError as error:
                self._known, self.silence = {}, str(error)
            self._asked = (time.monotonic(), wanted)
        return self._known

    def ended(self, jobs: Sequence[str]) -> Mapping[str, str]:
        """Task id → how accounting says that it ended; nothing where it does not answer. It is asked once."""
        if tuple(jobs) not in self._ended:
            try:
                self._ended[tuple(jobs)] = ended(jobs, timeout=PATIENCE_SECONDS)
            except QueueError:
                self._ended[tuple(jobs)] = {}
        return self._ended[tuple(jobs)]


def tasks_of(found: Sequence[Submitted], known: Mapping[str, Queued] | None, began: Mapping[str, bool]) -> list[Task]:
    """The tasks of submissions, oldest first.

    Args:
        found: the submissions.
        known: the answer of the queue; None: there is none.
        began: tasks of which a process has started → whether the records tell that it ended.
    """
    tasks = []
    for submitted in found:
        for job in submitted.jobs:
            for name, work in job.tasks().items():
                said = None if known is None else known.get(name)
                if said is not None and not is_of(said, submitted.folder):
                    said = None  # another job that was given the same number
                state = said.state if said is not None else GONE
                live = said is not None and said.live
                if known is None:
                    state = WAITING if name not in began else ENDED if began[name] else BEGUN
                    live = state != ENDED
                tasks.append(
                    Task(
                        id=name,
                        job=job.id,
                        submitted=submitted,
                        work=work,
                        state=state,
                        reason="" if said is None else said.reason,
                        nodes="" if said is None else said.nodes,
                        live=live,
                        begun=name in began,
                    )
                )
    return tasks


def is_of(said: Queued, folder: Path) -> bool:
    """Whether a task in the queue is of this submission, and no other that has the same number.

    Numbers begin anew where a cluster is set up anew, and go round after some millions. The script lies in the folder
    of the submission, whose name no other has; its path may lead there by another road than ours.
    """
    return not said.command.startswith("/") or Path(said.command).parent.name == folder.name
