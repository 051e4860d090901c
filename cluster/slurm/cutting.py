"""Units are cut into tasks, tasks into arrays, within what the cluster takes."""

from __future__ import annotations

import contextlib
import getpass
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from cluster.jobs.queue import QueueError, ask, settings
from cluster.jobs.submissions import Work
from cluster.slurm.resources import Resources
from pipeline.errors import UserError

UNKNOWN_ARRAY = 1001  # SLURM's own default of MaxArraySize
#: What sbatch says when there are too many jobs in the queue. POLICY it says of times and sizes, too; then it names
#: the limit in a line of its own, but for old versions.
TOO_MANY = ("SubmitJob", "MaxJobCount")
POLICY = "Job violates accounting/QOS policy"
_LIMIT = re.compile(r"(?:QOS|Assoc|Max|Min)[A-Z]\w+")
#: What it says when it does not know whether there is a job now, or when there is to be none for a while.
NO_ANSWER = ("timed out", "Zero Bytes", "Unable to contact slurm controller", "emporarily")
_ERROR = "sbatch: error: "


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What the cluster takes.

    Attributes:
        array: tasks of one array: MaxArraySize, which the greatest index must stay below, or max_array_tasks.
        submit: jobs that this user may have in the queue, each task of an array counting; None = no limit.
    """

    array: int = UNKNOWN_ARRAY
    submit: int | None = None


def limits(resources: Resources) -> Limits:
    """What ``scontrol`` and ``sacctmgr`` tell; where they do not answer, SLURM's defaults and no limit."""
    array = UNKNOWN_ARRAY
    with contextlib.suppress(QueueError, ValueError):
        said = settings()
        fewer_tasks = re.findall(r"max_array_tasks=(\d+)", said.get("SchedulerParameters", ""))
        array = max(1, min(int(found) for found in (said.get("MaxArraySize", UNKNOWN_ARRAY), *fewer_tasks)))
    return Limits(array=array, submit=_submit_limit(resources))


def _submit_limit(resources: Resources) -> int | None:
    """The smaller of the limits on jobs in the queue that this user's association and the QOS have.

    Of several associations (accounts, clusters, some for a partition) it is not known which one counts: the one that
    allows most. If that is too much, sbatch says so.
    """
    association = ["sacctmgr", "-nP", "show", "assoc", f"user={getpass.getuser()}"]
    if resources.account:
        association.append(f"account={resources.account}")
    questions = [[*association, "format=MaxSubmitJobs,GrpSubmitJobs"]]
    if resources.qos:
        questions.append(
            ["sacctmgr", "-nP", "show", "qos", resources.qos, "format=MaxSubmitJobsPU,MaxSubmitJobsPA,GrpSubmitJobs"]
        )
    found: list[float] = []
    for question in questions:
        with contextlib.suppress(QueueError):
            rows = [[int(value) for value in line.split("|") if value.isdigit()] for line in ask(question, timeout=10)]
            found.append(max((min(row, default=math.inf) for row in rows), default=math.inf))
    least = min(found, default=math.inf)
    return int(least) if least < math.inf else None


def cut(units: Sequence[str], resources: Resources, most: int | None) -> list[Work]:
    """Tasks of ``units_per_task`` units in order; of more, where only ``most`` tasks are taken."""
    each = resources.units_per_task
    if most is not None and len(units) > each * most:
        each = math.ceil(len(units) / max(1, most))
    return [Work(units=tuple(units[start : start + each])) for start in range(0, len(units), each)]


def shares(resources: Resources, most: int | None) -> list[Work]:
    """Tasks that divide what is missing when they start: for units that nobody knows yet."""
    count = min(resources.max_parallel, most or resources.max_parallel)
    return [Work(share=(k, count)) for k in range(count)]


def arrays(tasks: Sequence[Work], limit: int) -> list[Sequence[Work]]:
    """The tasks of each array: as few arrays as possible, all of about the same size."""
    count = max(1, math.ceil(len(tasks) / limit))
    each = max(1, math.ceil(len(tasks) / count))
    return [tasks[start : start + each] for start in range(0, len(tasks), each)]


def fewer(left: Sequence[Work], error: str) -> list[Sequence[Work]]:
    """The same work in half as many tasks, where SLURM says that there are too many.

    Raises:
        UserError: SLURM says something else, or there is no room for a single task.
    """
    lines = [line.removeprefix(_ERROR) for line in error.strip().splitlines()] or ["no reason given"]
    named = [line for line in lines if _LIMIT.fullmatch(line)]
    limit = next((line for line in lines if any(word in line for word in TOO_MANY)), None)
    if limit is None and not named:
        limit = next((line for line in lines if POLICY in line), None)
    if limit is None:
        if any(word in lines[-1] for word in NO_ANSWER):
            raise UserError(
                f"sbatch had no answer from SLURM ({lines[-1]}), which may be busy. The same command tries again; "
                "a job that was made all the same finds nothing to do, and ends after a minute."
            )
        raise UserError(
            f"sbatch refused the job: {': '.join([*named, lines[-1]])}. Check cluster.partition, account, qos, time "
            "and the like."
        )
    units = [unit for work in left for unit in work.units or ()]
    if len(left) == 1 or not units:
        what = f"{len(units)} units are" if units else "it is"
        raise UserError(
            f"there are as many jobs in the queue as SLURM takes ({limit}), so {what} "
            "not submitted. The same command submits what is missing once others have ended."
        )
    each = -(-len(units) // (len(left) // 2))
    return [[Work(units=tuple(units[start : start + each])) for start in range(0, len(units), each)]]
