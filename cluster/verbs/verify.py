"""check the bytes of what is finished; names what is broken and the command that repairs it"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from cluster.verbs.base import DONE, FAILED, Request, UsageError
from pipeline.config import config
from pipeline.errors import UserError
from stages.base import Stage


@config
class Options:
    """How thoroughly to look."""

    # Random rows that are made again from their images and compared with what is stored.
    recompute: Annotated[int, Field(ge=0)] = 0
    # Which rows those are.
    recompute_seed: int = 0


def run(request: Request) -> int:
    """Print every problem; exit code 1 if there is one.

    Raises:
        UsageError: rows are to be recomputed, and none of the chosen stages can.
    """
    options: Options = request.line.options
    broken: list[str] = []
    recomputed = False
    for link, stage in request.stages.items():
        if not _begun(stage):
            print(f"{link}: nothing to verify yet")
            continue
        problems = [*stage.verify_record(), *stage.verify(request.progress)]
        if options.recompute and not problems:
            found = stage.recompute(options.recompute, options.recompute_seed, request.progress)
            recomputed |= found is not None
            problems += found or []
        for problem in problems:
            print(f"{link}: {problem}")
        if problems:
            broken.append(link)
        else:
            print(f"{link}: all is well in {stage.folder}")
    if options.recompute and not recomputed and not broken:
        raise UsageError("recompute: none of the chosen stages has rows that can be made again. Write stage=cache.")
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
