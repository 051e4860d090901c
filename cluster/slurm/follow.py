"""Following a submission until nothing of it waits or runs: the table of ``submit status``, again and again."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TextIO

from cluster.executors.base import Outcome
from cluster.jobs.now import Overview
from cluster.jobs.overview import look
from cluster.jobs.table import table
from cluster.jobs.tasks import Queue
from stages.base import Stage

LOOK_SECONDS = 5.0
WRITE_SECONDS = 60.0  # where it is no terminal
GONE_SECONDS = 60.0  # without a live job, some answers of the queue: between two starts of a task it may not know it


def follow(stages: Mapping[str, Stage], *, shared: Path | None, stale_seconds: float) -> Outcome:
    """Show how far the stages are until all is done or no job is left.

    Args:
        stages: of the chain.
        shared: ``cluster.folder``.
        stale_seconds: ``cluster.stale_seconds``.
    """
    queue, shown, seen = Queue(), Shown(sys.stderr), time.monotonic()
    while True:
        overview = look(stages, shared=shared, stale_seconds=stale_seconds, queue=queue)
        shown.show(table(overview))
        if overview.silence is not None or any(task.live for now in overview.stages for task in now.tasks):
            seen = time.monotonic()
        if all(now.done for now in overview.stages) or time.monotonic() - seen >= GONE_SECONDS:
            break
        time.sleep(LOOK_SECONDS)
    shown.show(table(overview), last=True)
    return _outcome(overview)


def _outcome(overview: Overview) -> Outcome:
    lines: list[str] = []
    for now in overview.stages:
        if not now.done:
            failed = {f"{now.link}, unit {unit}": reason for unit, reason in now.failed.items()}
            left = now.problem or now.note or "no job of it is left and it is not done; `submit logs` says more"
            return Outcome(lines=tuple(lines), failed=failed or {now.link: left})
        lines.extend(now.stage.summary())
    return Outcome(lines=tuple(lines))


class Shown:
    """A text that takes the place of the one before on a terminal; elsewhere it is written now and then."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._live = stream.isatty()
        self._height = 0
        self._written = -WRITE_SECONDS
        self._text = ""

    def show(self, text: str, *, last: bool = False) -> None:
        """Show it; ``last``: whether or not it is time to."""
        if self._live:
            up = f"\x1b[{self._height}F\x1b[J" if self._height else ""
            self._stream.write(f"{up}{text}\n")
            self._height = text.count("\n") + 1
        elif text != self._text and (last or time.monotonic() - self._written >= WRITE_SECONDS):
            self._stream.write(f"{text}\n")
            self._written, self._text = time.monotonic(), text
        self._stream.flush()
