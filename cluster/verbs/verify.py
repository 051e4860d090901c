"""check the bytes of what is finished; names what is broken and the command that repairs it"""

from __future__ import annotations

from cluster.verbs.base import DONE, FAILED, Request


def run(request: Request) -> int:
    """Print every problem; exit code 1 if there is one."""
    broken: list[str] = []
    for link, stage in request.stages.items():
        if not stage.status().done:
            print(f"{link}: nothing to verify yet")
            continue
        problems = stage.verify(request.progress)
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
