"""What is known of stages and their jobs at a moment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from cluster.jobs.claims import Held
from cluster.jobs.history import Told
from cluster.jobs.tasks import Task
from stages.base import Stage, Status


@dataclass(frozen=True, kw_only=True)
class StageNow:
    """One stage, now.

    Attributes:
        link: the words that choose it in the chain.
        stage: itself.
        status: what is on disk.
        problem: why that cannot be told.
        running: claims that are fresh.
        queued: missing units that a task in the queue will do; None: not known yet how many there are.
        failed: unit → why it is not done, of those that nobody tries again by themselves.
        a_second: units that are done in a second, of late.
        tasks: of all its jobs, oldest first.
        note: why nothing goes on although something is missing.
        last_error: what went wrong last.
    """

    link: str
    stage: Stage
    status: Status
    problem: str | None = None
    running: tuple[Held, ...] = ()
    queued: int | None = 0
    failed: Mapping[str, str] = field(default_factory=dict)
    a_second: float | None = None
    tasks: tuple[Task, ...] = ()
    note: str | None = None
    last_error: Told | None = None

    @property
    def done(self) -> bool:
        """Nothing is missing."""
        return self.status.total is not None and self.status.done >= self.status.total

    @property
    def seconds_left(self) -> float | None:
        """Until all that has not failed is done, at the rate of late; None: nobody is at work, or it is not known."""
        if not self.running or not self.a_second or self.status.total is None:
            return None
        return max(0, self.status.total - self.status.done - len(self.failed)) / self.a_second


@dataclass(frozen=True, kw_only=True)
class Overview:
    """Some stages, now; ``silence``: why the queue does not answer, None where it does or there is nothing to ask."""

    stages: tuple[StageNow, ...]
    silence: str | None = None
