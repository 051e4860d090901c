"""check the bytes of what is finished; names what is broken and the command that repairs it"""

from __future__ import annotations

from cluster.verbs.base import DONE, FAILED, Request
from pipeline.errors import UserError
from stages.base import Stage


def run(request: Request) -> int:
    """Print every problem; exit code 1 if there is one."""
    broken: list[str] = []
    for link, stage in request.stages.items():
        if not _begun(stage):
            print(f"{link}: nothing to verify yet")
            continue
        problems = [*stage.verify_record(), *stage.verify(request.progress)]
        for problem in problems:
            print(f"{link}: {problem}")
        if problems:
            broken.append(link)
        else:
            print(f"{link}: all is well in {stage.folder}")
    if not broken:
        return DONE
    print("this repairs it:")
    for link in broken:
        print(f"  {request.line.command([link])}")
    return FAILED


def _begun(stage: Stage) -> bool:
    """Whether there is something to verify: done units, or records that cannot be read."""
    try:
        status = stage.status()
    except UserError:
        return True
    return bool(status.done or status.failed)
