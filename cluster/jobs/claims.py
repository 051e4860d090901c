"""Claims: who is at work on a unit, so that others do not do the same at the same time.

A claim is a file that comes into being whole or not at all, holds who has it, and whose time of change is a heartbeat.
One whose heart has not beaten for :data:`STALE_SECONDS` belongs to nobody: its holder died, and whoever takes it over
is told how. Clocks of machines need not agree: times are compared as the file system that holds the claims tells them,
and since some have them from the machines (Lustre, for one), a claim that looks old must have been seen not to change
for some heartbeats, and one that has not changed for :data:`STALE_SECONDS` is old whatever its time. Claims are a
courtesy and no lock: were two processes ever at one unit, both would write the same bytes.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from pipeline.files import NOT_OFFERED, json_bytes
from pipeline.processes import machine, runs
from pipeline.stale import again_if_stale

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
    """A unit that somebody else has; ``age`` seconds since the heartbeat, which was at ``beat``."""

    claim: Claim
    age: float
    beat: float


@dataclass(frozen=True, kw_only=True)
class _Found:
    held: Held
    generation: int
    path: Path


class Claims:
    """Takes claims for this process, and keeps them fresh by a thread.

    Args:
        jobs: folder.
        task: the scheduler's id of the task.
        restart: how often the task was started before.
        stale_seconds: after which a claim without heartbeat belongs to nobody.
        watch_seconds: for which one that looks so old must have been seen not to change; None: some heartbeats.
    """

    def __init__(
        self,
        jobs: Path,
        *,
        task: str = "",
        restart: int = 0,
        stale_seconds: float = STALE_SECONDS,
        watch_seconds: float | None = None,
    ) -> None:
        self.folder = jobs / FOLDER
        self.folder.mkdir(parents=True, exist_ok=True)
        self.task, self.restart, self.stale_seconds = task, restart, stale_seconds
        self.watch_seconds = stale_seconds / 3 if watch_seconds is None else watch_seconds
        self._seen: dict[str, tuple[float, float]] = {}  # unit → heartbeat of its claim, and when it was first seen
        self._mine: dict[str, tuple[Claim, Path]] = {}
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._beating: threading.Thread | None = None

    def take(self, unit: str) -> Claim | Held:
        """The claim of this process on a unit, or who else has it."""
        while True:
            found = self._current(unit)
            how = None if found is None else self._death(found.held)
            if found is not None and how is None:
                return found.held
            claim = self._new(unit, "" if found is None else f"{describe(found.held.claim)} {how}")
            generation = 0 if found is None else found.generation + 1
            if not self._create(claim, generation):
                continue  # somebody else was quicker
            if found is not None and not found.path.exists():  # its death is somebody else's to tell
                claim = replace(claim, death="")
            current = self._current(unit)
            if current is None or current.held.claim.token != claim.token:
                self._path(unit, generation).unlink(missing_ok=True)
                continue
            self._remove_older(unit, generation)
            self._seen.pop(unit, None)
            with self._lock:
                self._mine[unit] = claim, self._path(unit, generation)
            self._keep_beating()
            return claim

    def give_back(self, unit: str) -> None:
        """The unit is done, failed or dropped."""
        with self._lock:
            claim, path = self._mine.pop(unit)
        held = read_claim(path, 0)
        if held is not None and held.claim.token == claim.token:
            path.unlink(missing_ok=True)

    def close(self) -> None:
        """Give back what is left, and stop beating."""
        self._stop.set()
        if self._beating is not None:
            self._beating.join()
        for unit in list(self._mine):
            self.give_back(unit)

    # -- files: <unit>.<generation>; whoever takes a dead one's unit over makes the next generation, which only one can

    def _new(self, unit: str, death: str) -> Claim:
        return Claim(
            unit=unit,
            task=self.task,
            restart=self.restart,
            host=socket.gethostname(),
            machine=machine(),
            pid=os.getpid(),
            token=uuid.uuid4().hex,
            death=death,
        )

    def _path(self, unit: str, generation: int) -> Path:
        return self.folder / f"{unit}.{generation}"

    def _current(self, unit: str) -> _Found | None:
        """The newest claim on a unit."""
        beat = self.folder / f".{uuid.uuid4().hex}"
        beat.touch()
        now = beat.stat().st_mtime  # the file system's
        beat.unlink()
        generations = sorted(generation for name, generation in _names(self.folder) if name == unit)
        while generations:
            generation = generations.pop()
            path = self._path(unit, generation)
            held = read_claim(path, now)
            if held is not None:
                return _Found(held=held, generation=generation, path=path)
        return None

    def _create(self, claim: Claim, generation: int) -> bool:
        """Make the file whole; False if it is there."""
        path, data = self._path(claim.unit, generation), json_bytes(asdict(claim))
        temporary = self.folder / f".{claim.token}"
        temporary.write_bytes(data)
        try:
            os.link(temporary, path)  # fails if it is there, on NFS too
        except FileExistsError:
            return temporary.stat().st_nlink == 2  # made by us, and asked for twice since an answer was lost: link(2)
        except OSError as error:
            if error.errno not in NOT_OFFERED | {errno.EMLINK}:
                raise
            return _create_here(path, data)
        finally:
            temporary.unlink()
        return True

    def _remove_older(self, unit: str, generation: int) -> None:
        for name, older in _names(self.folder):
            if name == unit and older < generation:
                self._path(unit, older).unlink(missing_ok=True)

    def _death(self, held: Held) -> str | None:
        """How the holder ended, if it did."""
        claim = held.claim
        if claim.task and claim.task == self.task and claim.restart < self.restart:
            return "was ended and its task started anew"
        if has_died(claim):
            return "died"
        still = self._unchanged_for(held)
        if (held.age > self.stale_seconds and still >= self.watch_seconds) or still > self.stale_seconds:
            return f"has not been heard of for {max(held.age, still):.0f} s"
        return None

    def _unchanged_for(self, held: Held) -> float:
        """Seconds since this process saw the last heartbeat for the first time."""
        now = time.monotonic()
        beat, since = self._seen.setdefault(held.claim.unit, (held.beat, now))
        if beat != held.beat:
            self._seen[held.claim.unit] = held.beat, now
            return 0.0
        return now - since if held.claim.token else float("inf")

    # -- heartbeat

    def _keep_beating(self) -> None:
        if self._beating is None:
            beating = threading.Thread(target=self._beat, name="claims", daemon=True)
            beating.start()  # it may be one thread more than there may be
            self._beating = beating

    def _beat(self) -> None:
        while not self._stop.wait(min(BEAT_SECONDS, self.stale_seconds / 6)):
            with self._lock:
                mine = [path for _, path in self._mine.values()]
            for path in mine:
                with contextlib.suppress(OSError):  # a server that does not answer for a while
                    os.utime(path)


def _create_here(path: Path, data: bytes) -> bool:
    """Where there are no hard links (FAT, SMB, many FUSE file systems): alone, but for a moment the file is empty.

    Whoever looks at that moment takes it for nobody's. Then two are at one unit and write the same bytes.
    """
    try:
        with path.open("xb", buffering=0) as file:
            file.write(data)
    except FileExistsError:
        return False
    return True


def has_died(claim: Claim) -> bool:
    """Whether the holder was a process of this machine that runs no more."""
    return claim.machine == machine() and not runs(claim.pid)


def describe(claim: Claim) -> str:
    """Who has or had it, for a person."""
    return f"task {claim.task} on {claim.host}" if claim.task else f"process {claim.pid} on {claim.host}"


def read_claim(path: Path, now: float) -> Held | None:
    """A claim with its age at ``now``; None if it is gone. A damaged one belongs to nobody, and is as old as can be."""
    try:
        beat, data = _content(path)
    except FileNotFoundError:
        return None
    try:
        return Held(claim=Claim(**json.loads(data)), age=now - beat, beat=beat)
    except (ValueError, TypeError):
        nobody = Claim(unit=path.name.rpartition(".")[0], task="", restart=0, host="", machine="", pid=0, token="")
        return Held(claim=nobody, age=float("inf"), beat=beat)


@again_if_stale
def _content(path: Path) -> tuple[float, bytes]:
    """Time of change and bytes. It may go at any moment, which a network disk may say as ESTALE.

    Such a disk answers stat() out of its memory, which may be a minute old; opening a file asks the server.
    """
    with path.open("rb") as file:
        return os.fstat(file.fileno()).st_mtime, file.read()


def held_now(jobs: Path, now: float) -> Iterator[Held]:
    """All claims of a stage; fresh ones are those whose age is below :data:`STALE_SECONDS`."""
    folder = jobs / FOLDER
    newest: dict[str, int] = {}
    for unit, generation in _names(folder):
        newest[unit] = max(generation, newest.get(unit, 0))
    for unit, generation in sorted(newest.items()):
        held = read_claim(folder / f"{unit}.{generation}", now)
        if held is not None:
            yield held


def _names(folder: Path) -> Iterator[tuple[str, int]]:
    """Unit and generation of every claim."""
    for path in folder.iterdir() if folder.is_dir() else []:
        unit, _, generation = path.name.rpartition(".")
        if unit and generation.isdigit():
            yield unit, int(generation)
