"""What one process of one task did, line by line: appended by it alone, read by whoever wants to know.

``<submission folder>/journal/<task id>.<rank>.jsonl``. A task that is requeued goes on in the same file, with a higher
restart count.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from pipeline.files import append_text

FOLDER = "journal"
LONGEST = 1 << 20  # bytes that are read from the end: some thousand events

What = Literal["started", "unit", "done", "failed", "dropped", "skipped", "waiting", "ended"]


@dataclass(frozen=True, kw_only=True)
class Event:
    """One line.

    Attributes:
        time: seconds since 1970.
        event: ``started`` the process; ``unit``: began one; ``done``: committed it; ``failed``: could not; ``dropped``:
            gave it back unfinished; ``skipped``: somebody else did it; ``waiting``: for one that somebody else is at;
            ``ended`` the process.
        unit: id, where it is about one.
        reason: why, where there is something to say; of ``unit``: why it is begun again.
        host: name of the machine.
        node: the scheduler's name of it.
        restart: how often the task was started before.
    """

    time: float
    event: What
    unit: str | None = None
    reason: str | None = None
    host: str = ""
    node: str = ""
    restart: int = 0


class Journal:
    """Writes the events of this process."""

    def __init__(self, path: Path, *, host: str, node: str, restart: int) -> None:
        self.path = path
        self._about = {"host": host, "node": node, "restart": restart}

    def note(self, event: What, unit: str | None = None, reason: str | None = None) -> None:
        """Add a line, durably."""
        entry = asdict(Event(time=time.time(), event=event, unit=unit, reason=reason, **self._about))  # type: ignore[arg-type]
        line = {key: value for key, value in entry.items() if value is not None}
        append_text(self.path, json.dumps(line, ensure_ascii=False) + "\n")


def journal_path(submission: Path, task: str, rank: int) -> Path:
    """Of one process of one task."""
    return submission / FOLDER / f"{task}.{rank}.jsonl"


def read_journal(path: Path) -> Iterator[Event]:
    """The last events of one process; a line that was cut off by a crash, or by the limit, is passed over."""
    with path.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - LONGEST))
        for line in file:
            try:
                plain: dict[str, Any] = json.loads(line.decode(errors="replace"))
                yield Event(**plain)
            except (ValueError, TypeError):
                continue
