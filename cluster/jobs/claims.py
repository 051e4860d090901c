"""Claims: who is at work on a unit, so that others do not do the same at the same time.

A claim is a file that comes into being whole or not at all, holds who has it, and whose time of change is a heartbeat.
One whose heart has not beaten for :data:`STALE_SECONDS` belongs to nobody: its holder died, and whoever takes it over
is told how. Times are compared as the file system that holds the claims tells them, so clocks of machines need not
agree. Claims are a courtesy and no lock: were two processes ever at one unit, both would write the same bytes.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import uuid
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from pipeline.files import json_bytes
from pipeline.processes import machine, runs

FOLDER = "claims"
BEAT_SECONDS = 5.0
STALE_SECONDS = 60.0


@dataclass(frozen=True, kw_only=True)
class Claim:
    """Who has a unit.

    Attributes:
        unit: id.
        task: the scheduler's id of the task; empty outside of one.
        restart: how often the task had been started before.
        host: where the process runs.
        machine: see :func:`pipeline.processes.machine`.
        pid: of the process.
        token: of this claim alone.
        death: how the holder before this one died; empty if none did.
    """

    unit: str
    task: str
    restart: int
    host: str
    machine: str
    pid: int
    token: str
    death: str = ""


@dataclass(frozen=True, kw_only=True)
class Held:
    """A unit that somebody else has; ``age`` seconds since the heartbeat."""

    claim: Claim
    age: float


class Claims:
    """Takes claims for this process, and keeps them fresh by a thread."""

    def __init__(self, jobs: Path, *, task: str = "", restart: int = 0, stale_seconds: float = STALE_SECONDS) -> None:
        self.folder = jobs / FOLDER
        self.folder.mkdir(parents=True, exist_ok=True)
        self.task, self.restart, self.stale_seconds = task, restart, stale_seconds
        self._mine: dict[str, Claim] = {}
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._beating: threading.Thread | None = None

    def take(self, unit: str) -> Claim | Held:
        """The claim of this process on a unit, or who else has it."""
        death = ""
        while True:
            claim = Claim(
                unit=unit,
                task=self.task,
                restart=self.restart,
                host=socket.gethostname(),
                machine=machine(),
                pid=os.getpid(),
                token=uuid.uuid4().hex,
                death=death,
            )
            now = self._create(claim)
            if now is None:
                with self._lock:
                    self._mine[unit] = claim
                self._keep_beating()
                return claim
            found = read_claim(self.folder / unit, now)
            if found is None:
                continue  # it was given back in this moment
            how = self._death(found)
            if how is None:
                return found
            if self._remove(found.claim):
                death = f"{describe(found.claim)} {how}"

    def give_back(self, unit: str) -> None:
        """The unit is done, failed or dropped."""
        with self._lock:
            claim = self._mine.pop(unit)
        self._remove(claim)

    def close(self) -> None:
        """Give back what is left, and stop beating."""
        self._stop.set()
        if self._beating is not None:
            self._beating.join()
        for unit in list(self._mine):
            self.give_back(unit)

    # -- files

    def _create(self, claim: Claim) -> float | None:
        """Make the file; if there is one, the file system's time now."""
        path = self.folder / claim.unit
        temporary = self.folder / f".{claim.token}"
        temporary.write_bytes(json_bytes(asdict(claim)))
        try:
            os.link(temporary, path)  # fails if it is there, on NFS too
        except FileExistsError:
            return temporary.stat().st_mtime
        finally:
            temporary.unlink()
        return None

    def _death(self, held: Held) -> str | None:
        """How the holder ended, if it did."""
        claim = held.claim
        if claim.task and claim.task == self.task and claim.restart < self.restart:
            return "was ended and its task started anew"
        if claim.machine == machine() and not runs(claim.pid):
            return "died"
        if held.age > self.stale_seconds:
            return f"has not been heard of for {held.age:.0f} s"
        return None

    def _remove(self, claim: Claim) -> bool:
        """Take away this very claim; False if it is gone or another one is there now."""
        path, aside = self.folder / claim.unit, self.folder / f".{uuid.uuid4().hex}"
        try:
            path.rename(aside)
        except FileNotFoundError:
            return False
        removed = read_claim(aside, 0)
        if removed is not None and removed.claim.token != claim.token:
            # between our look and the rename somebody else took it over: it is put back
            with contextlib.suppress(FileExistsError):
                os.link(aside, path)
            aside.unlink()
            return False
        aside.unlink()
        return True

    # -- heartbeat

    def _keep_beating(self) -> None:
        if self._beating is None:
            self._beating = threading.Thread(target=self._beat, name="claims", daemon=True)
            self._beating.start()

    def _beat(self) -> None:
        while not self._stop.wait(min(BEAT_SECONDS, self.stale_seconds / 6)):
            with self._lock:
                mine = list(self._mine)
            for unit in mine:
                with contextlib.suppress(OSError):  # a server that does not answer for a while
                    os.utime(self.folder / unit)


def describe(claim: Claim) -> str:
    """Who has or had it, for a person."""
    return f"task {claim.task} on {claim.host}" if claim.task else f"process {claim.pid} on {claim.host}"


def read_claim(path: Path, now: float) -> Held | None:
    """A claim with its age at ``now``; None if it is gone. A damaged one belongs to nobody, and is as old as can be."""
    try:
        changed, data = path.stat().st_mtime, path.read_bytes()
    except FileNotFoundError:
        return None
    try:
        return Held(claim=Claim(**json.loads(data)), age=now - changed)
    except (ValueError, TypeError):
        nobody = Claim(unit=path.name, task="", restart=0, host="", machine="", pid=0, token="")
        return Held(claim=nobody, age=float("inf"))


def held_now(jobs: Path, now: float) -> Iterator[Held]:
    """All claims of a stage; fresh ones are those whose age is below :data:`STALE_SECONDS`."""
    folder = jobs / FOLDER
    for path in sorted(folder.iterdir()) if folder.is_dir() else []:
        held = None if path.name.startswith(".") else read_claim(path, now)
        if held is not None:
            yield held
