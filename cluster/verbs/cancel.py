"""end the jobs of the chosen stages that wait or run; what is done stays done (--json)"""

from __future__ import annotations

import json
from dataclasses import asdict

from cluster.jobs.cancelling import cancel_jobs
from cluster.jobs.folder import folder_of
from cluster.jobs.queue import QueueError
from cluster.jobs.submissions import submissions
from cluster.verbs.base import DONE, Request, UsageError
from pipeline.errors import UserError


def run(request: Request) -> int:
    """Say which jobs were ended, and what goes on with the work.

    Raises:
        UsageError: no stage was chosen.
        UserError: the queue does not answer.
    """
    if not request.line.stages:
        raise UsageError("the jobs of which stage? Write stage=<name>, stage=[<first>,<second>] or stage=all.")
    folders = {link: folder_of(stage, request.job_settings["shared"]) for link, stage in request.stages.items()}
    records = {link: [] if folder is None else list(submissions(folder)) for link, folder in folders.items()}
    try:
        ended = cancel_jobs(records) if any(records.values()) else []
    except QueueError as error:
        raise UserError(f"{error}, so nobody can tell which jobs run. Try again when SLURM answers.") from None
    submitted = [found[-1].command for found in records.values() if found]
    command = submitted[-1] if ended else request.line.command()  # with the settings of the cluster
    if request.line.json:
        print(json.dumps({"cancelled": [asdict(item) for item in ended], "command": command}, indent=2))
        return DONE
    for item in ended:
        states = ", ".join(f"{state} {count}" for state, count in item.states.items())
        print(f"{item.link}: job {item.job} was told to end ({states})")
    if not ended:
        print("nothing of this run waits or runs")
    print(f"what is done stays done; this goes on:\n  {command}")
    return DONE
