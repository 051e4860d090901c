"""show the last lines of what failed, or of units and tasks: logs 000123"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import Field

from cluster.executors.local import LOG
from cluster.jobs.blame import failures, of_unit
from cluster.jobs.folder import folder_of
from cluster.jobs.history import History
from cluster.jobs.logs import Log, last_lines, of_task
from cluster.jobs.notes import clock, first_line
from cluster.jobs.overview import fresh_claims
from cluster.jobs.submissions import submissions
from cluster.verbs.base import DONE, FAILED, Request
from pipeline.config import config
from pipeline.places import Place
from stages.base import Stage


@config
class Options:
    """What is shown."""

    words: ClassVar[str] = "of"  # what is given without a key …
    words_are: ClassVar[str] = "unit|job|task …"  # … and what that may be
    # Units (000123), jobs (1234) or tasks (1234_7), written as words without of=. None: what failed, latest last.
    of: tuple[str, ...] = ()
    # Of each log, the last so many.
    lines: Annotated[int, Field(ge=1)] = 20
    # Logs of each stage and word, the last so many.
    most: Annotated[int, Field(ge=1)] = 5


@dataclass(frozen=True, kw_only=True)
class _Shown:
    """One log: its place, what is known of it, its last lines."""

    stage: str
    path: Place
    about: str
    lines: Sequence[str]


def run(request: Request) -> int:
    """Print the lines; 1 if there are none."""
    options: Options = request.line.options
    wanted = (*options.of, *request.line.units)
    shown = [item for link, stage in request.stages.items() for item in _stage(link, stage, wanted, options, request)]
    if request.line.json:
        print(json.dumps([_plain(item) for item in shown], indent=2))
        return DONE if shown else FAILED
    for item in shown:
        print(f"== {item.stage}: {item.about}\n== {item.path}")
        print("\n".join(item.lines), end="\n\n")
    if not shown:
        of = f" of {', '.join(wanted)}" if wanted else ""
        print(f"no log{of} in {', '.join(str(stage.folder) for stage in request.stages.values())}", file=sys.stderr)
    return DONE if shown else FAILED


def _stage(link: str, stage: Stage, wanted: Sequence[str], options: Options, request: Request) -> list[_Shown]:
    """What there is of one stage, oldest first."""
    shared, stale_seconds = request.job_settings["shared"], request.job_settings["stale_seconds"]
    folder = folder_of(stage, shared)
    found = list(submissions(folder)) if folder is not None else []
    history = History(found)
    if wanted:
        logs = [log for word in wanted for log in (of_task(word, found) or of_unit(word, history))[-options.most :]]
    elif found and folder is not None:
        at_work = {held.claim.task for held in fresh_claims(folder, stale_seconds)}
        logs = failures(history, stage.status().done_ids, at_work, time.time() - stale_seconds)[-options.most :]
    else:
        logs = []
    shown = [_shown(link, log, options.lines) for log in logs]
    return [item for item in shown if item.lines] or _local(link, stage, wanted, options.lines)


def _shown(link: str, log: Log, count: int) -> _Shown:
    rank = f", rank {log.rank}" if log.rank else ""
    why = f", {first_line(log.why)}" if log.why else ""
    lines = last_lines(log.path, count) if log.path.exists() else ["(it wrote nothing)"]
    return _Shown(stage=link, path=log.path, about=f"task {log.task}{rank}, {clock(log.time)}{why}", lines=lines)


def _local(link: str, stage: Stage, wanted: Sequence[str], count: int) -> list[_Shown]:
    """Of a stage that ran in place: its log, or the lines in it that tell of units."""
    path = stage.folder / LOG
    if not path.exists():
        return []
    if not wanted:
        lines = last_lines(path, count) if isinstance(path, Path) else path.read_text().splitlines()[-count:]
        return [_Shown(stage=link, path=path, about="in place", lines=lines)]
    told = [
        line for line in path.read_text(encoding="utf-8").splitlines() if any(f"unit {word}" in line for word in wanted)
    ]
    return (
        [_Shown(stage=link, path=path, about=f"in place, unit {', '.join(wanted)}", lines=told[-count:])]
        if told
        else []
    )


def _plain(item: _Shown) -> dict[str, Any]:
    return {"stage": item.stage, "path": str(item.path), "about": item.about, "lines": list(item.lines)}
