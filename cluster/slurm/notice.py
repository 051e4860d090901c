"""How a task learns that it must stop, why that is, and whether it is to be started again."""

from __future__ import annotations

import re
import shutil
import signal
import time
from types import FrameType

from cluster.jobs.queue import QueueError, ask
from cluster.slurm.script import TIME_ENDED
from pipeline.interruption import ask_to_stop

ANSWER_SECONDS = 10.0  # that scontrol is given; a process that was told to end has not many


class Notice:
    """What SLURM's signals have told one rank; its time runs from the making of this.

    Args:
        job_id: of the task.
        minutes: time limit.
        restart: how often the task was started before.
    """

    def __init__(self, job_id: str, *, minutes: int, restart: int) -> None:
        self.job_id, self.minutes, self.restart = job_id, minutes, restart
        self.began = time.monotonic()
        self.signal: int | None = None

    def listen(self) -> None:
        """Signals ask to stop; they take the place of submitit's, which end the process wherever it is."""

        def asked(number: int, frame: FrameType | None) -> None:
            if self.signal != signal.SIGUSR2:  # at the time limit TERM follows; the task goes on all the same
                self.signal = number
            ask_to_stop()

        for number in (signal.SIGUSR2, signal.SIGTERM):
            signal.signal(number, asked)
        signal.signal(signal.SIGCONT, signal.SIG_IGN)

    def of_time_limit(self) -> bool:
        """Whether it came because the time limit is near, as far as a process can tell."""
        return self.signal == signal.SIGUSR2 and time.monotonic() - self.began > 0.5 * self.minutes * 60

    def why(self) -> str:
        """Why the task had to stop, in words."""
        if self.of_time_limit():
            return f"ran into the time limit of {self.minutes} min"
        return "told to end" if self.signal == signal.SIGTERM else "preempted"

    def goes_on(self) -> bool | None:
        """Whether this task is to be started again: not if somebody cancelled it, be it after it was told to stop.

        None: SLURM cannot be asked here, as in a container that has none of its commands; the batch script can. A
        cancelled job is COMPLETING at this moment. So is one that was requeued, but that has one restart more, and
        one whose time has ended, which is the reason then. Where nobody answers, a task that was told goes on.
        """
        told = self.signal == signal.SIGUSR2
        if not told and shutil.which("scontrol") is None:
            return None
        try:
            facts = " ".join(ask(["scontrol", "show", "job", "--oneliner", self.job_id], timeout=ANSWER_SECONDS))
        except QueueError:
            return told
        counted = re.search(r"\bRestarts=(\d+)", facts)
        restarted = counted is not None and int(counted[1]) > self.restart
        return "JobState=RUNNING" in facts or restarted or (told and TIME_ENDED in facts)
