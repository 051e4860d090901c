"""What a verb gets, and how it ends. A verb's file has a function ``run(request) -> int`` that gives the exit code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cluster.compose import Composed
from cluster.jobs.claims import STALE_SECONDS
from cluster.overrides import CommandLine
from pipeline.errors import UserError
from pipeline.progress import Progress
from stages.base import Stage, is_done

DONE, FAILED, USAGE, INTERRUPTED, TERMINATED = 0, 1, 2, 130, 143


class UsageError(UserError):
    """The command itself is wrong; nothing was begun."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """A command, understood and composed.

    Attributes:
        line: what the user wrote.
        composed: what it means.
        stages: the chosen ones in the order of the chain, under the words that choose them; the whole chain if none is.
        progress: for bars.
    """

    line: CommandLine
    composed: Composed
    stages: Mapping[str, Stage]
    progress: Progress

    @property
    def job_settings(self) -> dict[str, Any]:
        """Those of the executor that say where job records lie and how they are read."""
        cluster = self.composed.cluster
        shared = cluster.get("folder")
        return {
            "shared": None if shared is None else Path(shared),
            "stale_seconds": float(cluster.get("stale_seconds", STALE_SECONDS)),
        }


def unfinished(stage: Stage) -> list[str]:
    """The stages that ``stage`` reads and that are not done."""
    return [name for name in stage.inputs() if not is_done(stage.before(name))]


def size(count: float) -> str:
    """Bytes for a person, in powers of 1000."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} PB"
