"""run what is missing of the chosen stages (the default verb)"""

from __future__ import annotations

import sys

from cluster.executors import make_executor
from cluster.executors.base import Submission
from cluster.verbs.base import DONE, FAILED, Request, UsageError


def run(request: Request) -> int:
    """Hand the chosen stages to the executor; say what came out, or what failed and what goes on with the rest.

    Raises:
        UsageError: no stage was chosen.
    """
    if not request.line.stages:
        raise UsageError(
            "which stage? Write stage=<name>, stage=[<first>,<second>] or stage=all. submit --help lists them."
        )
    command = request.line.command()
    executor = make_executor(request.composed.cluster, request.progress)
    outcome = executor.submit(Submission(stages=request.stages, resolved=request.composed.resolved, command=command))
    for line in outcome.lines:
        print(line)
    if not outcome.failed:
        print(f"the same command again goes on, or says that nothing is missing:\n  {command}")
        return DONE
    for what, reason in outcome.failed.items():
        said = reason if reason.startswith(f"{what}: ") else f"{what}: {reason}"  # some name their stage
        print(f"failed: {said}", file=sys.stderr)
    print(f"what is done stays done; this goes on with the rest:\n  {command}", file=sys.stderr)
    return FAILED
