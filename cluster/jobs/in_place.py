"""What the process of ``cluster=local`` says of itself while it works, so that ``submit status`` can tell.

A claim on each unit it is at, as tasks of a scheduler have, and ``<jobs folder>/in_place/<host>-<pid>-<time>.jsonl``, a
journal of its run. Neither decides anything: a unit that somebody else is at is done all the same, with the same bytes.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from cluster.jobs.claims import Claim, Claims
from cluster.jobs.folder import folder_of
from cluster.jobs.journal import Journal
from pipeline.interruption import Interrupted
from stages.base import Stage, Unit

FOLDER = "in_place"
STOPPED = "stopped"


class AtWork:
    """The notes of one run of one stage.

    Does nothing where there is no place for them. What cannot be noted (a full disk, a folder of somebody else, no
    thread left for the heartbeat) is left out: the work itself says what it lacks.
    """

    def __init__(self, jobs: Path | None) -> None:
        self._units: dict[str, bool] = {}  # that are begun → whether the claim is ours
        self._claims: Claims | None = None
        self._journal: Journal | None = None
        if jobs is not None:
            host = socket.gethostname()
            with _leaving_out():
                self._claims = Claims(jobs, watch_seconds=0)  # nothing waits for who seems to be dead
            name = f"{host}-{os.getpid()}-{time.time_ns()}.jsonl"
            self._journal = Journal(jobs / FOLDER / name, host=host, node="", restart=0)

    def begin(self, unit: Unit) -> None:
        """It is at a unit now."""
        if self._claims is None or self._journal is None:
            return
        held = self._units.setdefault(unit.id, False)
        with _leaving_out():
            if not held:  # one whose process died may be begun again
                self._units[unit.id] = isinstance(self._claims.take(unit.id), Claim)
            self._journal.note("unit", unit.id)

    def end(self, unit: Unit, reason: str | None) -> None:
        """The unit is done, or why it is not."""
        if self._claims is None or self._journal is None:
            return
        ours = self._units.pop(unit.id)
        with _leaving_out():
            if ours:
                self._claims.give_back(unit.id)
            self._journal.note("failed" if reason else "done", unit.id, reason)

    def close(self, reason: str | None = None) -> None:
        """The run has ended; units that are under way are dropped."""
        if self._claims is None or self._journal is None:
            return
        with _leaving_out():
            for unit in self._units:
                self._journal.note("dropped", unit, reason)
            if self._units or reason:
                self._journal.note("ended", None, reason)
        with _leaving_out():
            self._claims.close()


def _leaving_out() -> suppress:
    return suppress(OSError, RuntimeError)  # the second: of a thread that cannot be started


@contextmanager
def at_work(stage: Stage) -> Iterator[AtWork]:
    """Notes of a run of ``stage`` from here on; how it ended is noted, too."""
    notes = AtWork(folder_of(stage, None))
    try:
        yield notes
    except (KeyboardInterrupt, Interrupted):
        notes.close(STOPPED)
        raise
    except BaseException as error:
        notes.close(f"{type(error).__name__}: {error}")
        raise
    else:
        notes.close()
