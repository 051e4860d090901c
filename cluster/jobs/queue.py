"""What the scheduler says: asked rarely, many jobs at once, and believed last.

Nothing here decides whether a unit is done. It says which jobs still wait or run, so that nobody submits the same
twice, and what became of the others, for people.
"""

from __future__ import annotations

import os
import pwd
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

TIMEOUT_SECONDS = 30.0
#: States of a job that will do nothing more; SLURM's words. Newer versions have more words for the others.
OVER = frozenset(
    {"COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "PREEMPTED", "BOOT_FAIL", "DEADLINE", "OUT_OF_MEMORY"}
    | {"REVOKED", "LAUNCH_FAILED", "?", ""}
)
NEVER = "DependencyNeverSatisfied"
#: Variables of a user's shell that would hide jobs from these commands, give another form, or ask before they cancel.
OF_THE_SHELL = ("SQUEUE_", "SACCT_", "SCANCEL_")


class QueueError(Exception):
    """The scheduler is not there or does not answer; what is on disk holds all the same."""


@dataclass(frozen=True, kw_only=True)
class Queued:
    """One task in the queue.

    Attributes:
        task: ``123`` or ``123_4``.
        state: SLURM's word, e.g. ``PENDING``.
        reason: why it waits, SLURM's word.
        nodes: where it runs.
        command: path of the script that was submitted.
    """

    task: str
    state: str
    reason: str = ""
    nodes: str = ""
    command: str = ""

    @property
    def live(self) -> bool:
        """Whether it will still do something."""
        return self.state not in OVER and self.reason != NEVER


def queued(jobs: Sequence[str], *, users: Iterable[str] = (), timeout: float = TIMEOUT_SECONDS) -> dict[str, Queued]:
    """Task id → what squeue says of it; tasks that it does not know any more are absent.

    Args:
        jobs: ids, of arrays without index.
        users: who submitted them; those that this machine does not know are left out.
        timeout: seconds.

    Raises:
        QueueError: squeue is not there or does not answer.
    """
    if not jobs:
        return {}
    wanted = set(jobs)
    # not --jobs: squeue fails as a whole if one of them is forgotten already; all of some users are one question, too
    return {said.task: said for said in _of_users(users, timeout) if job_of(said.task) in wanted}


def job_of(task: str) -> str:
    """The id of the job that a task is of; of a job, its own."""
    return task.split("_")[0]


def submitted_from(folder: Path) -> list[str]:
    """The jobs of this user that wait or run, and whose script lies in ``folder``; however it is reached.

    Raises:
        QueueError: squeue is not there or does not answer.
    """
    found = [said for said in _of_users((), TIMEOUT_SECONDS) if Path(said.command).parent.name == folder.name]
    return list(dict.fromkeys(job_of(said.task) for said in found))


def _of_users(users: Iterable[str], timeout: float) -> Iterator[Queued]:
    """All tasks in the queue of this user, and of others that this machine knows."""
    whose = ",".join([str(os.getuid()), *sorted({*filter(_is_known, users)})])
    lines = ask(["squeue", "--noheader", f"--user={whose}", "--array", "--format=%i|%T|%r|%N|%o"], timeout=timeout)
    for line in lines:
        task, state, reason, nodes, command = [*line.split("|", 4), "", "", "", ""][:5]
        yield Queued(task=task, state=state, reason=reason, nodes=nodes, command=command)


def _is_known(user: str) -> bool:
    try:
        return bool(pwd.getpwnam(user))
    except KeyError:
        return False


def ended(jobs: Sequence[str], *, timeout: float = TIMEOUT_SECONDS) -> dict[str, str]:
    """Task id → the state that sacct tells of it, of those it knows. ``NODE_FAIL`` and others may be seconds old.

    Raises:
        QueueError: sacct is not there or does not answer.
    """
    if not jobs:
        return {}
    command = ["sacct", "--noheader", "--allocations", "--parsable2", "--format=JobID,State"]
    found = {}
    for line in ask([*command, f"--jobs={','.join(jobs)}"], timeout=timeout):
        task, _, state = line.partition("|")
        found[task] = state.split(" ")[0]  # "CANCELLED by 0"
    return found


def cancel(tasks: Sequence[str]) -> None:
    """End jobs or single tasks.

    Raises:
        QueueError: scancel is not there or does not answer.
    """
    for start in range(0, len(tasks), 1000):
        ask(["scancel", *tasks[start : start + 1000]])


def settings() -> dict[str, str]:
    """What ``scontrol show config`` says.

    Raises:
        QueueError: scontrol is not there or does not answer.
    """
    pairs = (re.split(r"\s*=\s*", line, maxsplit=1) for line in ask(["scontrol", "show", "config"]))
    return {pair[0].strip(): pair[1].strip() for pair in pairs if len(pair) == 2}


def ask(command: Sequence[str], *, timeout: float = TIMEOUT_SECONDS) -> list[str]:
    """The lines that a command of the scheduler prints.

    Raises:
        QueueError: it is not installed, fails, or takes too long.
    """
    name = command[0]
    if shutil.which(name) is None:
        raise QueueError(f"there is no {name} here: this is no machine of a SLURM cluster")
    plain = {key: value for key, value in os.environ.items() if not key.startswith(OF_THE_SHELL)}
    if "SBATCH_CLUSTERS" in plain:  # where sbatch sends jobs the others look for them
        plain["SLURM_CLUSTERS"] = plain["SBATCH_CLUSTERS"]
    try:
        done = subprocess.run(command, env=plain, capture_output=True, text=True, timeout=timeout, errors="replace")
    except subprocess.TimeoutExpired:
        raise QueueError(f"{name} did not answer within {timeout:.0f} s") from None
    if done.returncode:
        raise QueueError(f"{name} failed: {(done.stderr or done.stdout).strip()[-500:]}")
    return [line for line in done.stdout.splitlines() if line.strip()]
