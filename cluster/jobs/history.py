"""What the journals of a stage tell together: how quick it is, what went wrong last, which tasks have begun.

Those of tasks are in the folders of their submissions, and in a folder of their own those of processes that were no
tasks. Only the journals that were written last are read, :data:`MOST` of them: a run may have as many as it has tasks.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

from cluster.jobs import journal
from cluster.jobs.journal import Event, read_journal
from cluster.jobs.logs import started_in
from cluster.jobs.submissions import Submitted

MOST = 1000
#: Seconds that a rate is taken of: the first in which :data:`ENOUGH` units were done, else the last.
WINDOWS = (1800.0, 21_600.0, 259_200.0)
ENOUGH = 3
#: Ends that are no fault, as a task says them.
INTERRUPTED, STOPPED = "interrupted, goes on", "stopped"
FINE = (INTERRUPTED, STOPPED)


@dataclass(frozen=True, kw_only=True)
class Told:
    """One event, with the task it is of."""

    task: str
    rank: int
    submission: Path
    event: Event

    @property
    def process(self) -> tuple[Path, str, int]:
        """Which process it is of."""
        return self.submission, self.task, self.rank


class Found(NamedTuple):
    """A journal: of one process of a task of a submission; ``changed`` is when it was written last."""

    place: str
    task: str
    rank: int
    submission: Path
    changed: float

    @property
    def path(self) -> Path:
        """Of the file. There may be as many as there are tasks, so few of them are made."""
        return Path(self.place)


class History:
    """The journals of the submissions of a stage, as they are now."""

    def __init__(self, found: Sequence[Submitted], *, in_place: Path | None = None) -> None:
        self.submissions = tuple(found)
        journals = [*_journals(found), *(_journals_in_place(in_place) if in_place else ())]
        self.journals = sorted(journals, key=lambda journal: -journal.changed)
        self.started = {task for submitted in found for task in started_in(submitted.folder)}

    @cached_property
    def _last(self) -> list[Told]:
        """The events of the journals that were written last, in the order of time; those of one, as they stand there.

        A task that is started anew on another node has another clock from there on.
        """
        told: list[tuple[float, Told]] = []
        for found in self.journals[:MOST]:
            events = list(events_of(found))
            told.extend(zip(accumulate((item.event.time for item in events), max), events, strict=True))
        return [item for _, item in sorted(told, key=itemgetter(0))]

    @property
    def began(self) -> dict[str, bool]:
        """Tasks that have started → whether the last process that did has ended, as far as was looked.

        One that fails before it can say anything has a log and no journal.
        """
        ended = {item.task: _for_good(item.event) for item in self._last if item.rank == 0}
        return dict.fromkeys(self.started, False) | {
            journal.task: ended.get(journal.task, True) for journal in self.journals
        }

    @cached_property
    def failed(self) -> set[tuple[str, str | None]]:
        """Task and unit of every failure, as far as was looked."""
        return {(item.task, item.event.unit) for item in self._last if item.event.event == "failed"}

    def a_second(self, now: float) -> float | None:
        """Units that are done in a second, of late; None: none was, for days."""
        units = [item.event for item in self._last if item.event.event == "unit"]
        done = [item.event.time for item in self._last if item.event.event == "done"]
        if not units or not done:
            return None
        now = max(now, *done)  # of a node whose clock is ahead
        # all that happened since the newest of those that were not read was written last is known
        known = self.journals[MOST].changed if len(self.journals) > MOST else units[0].time
        for window in WINDOWS:
            since = max(now - window, known)
            within = [time for time in done if time > since]
            if len(within) >= ENOUGH or since == known:
                break
        return len(within) / max(now - since, 1.0) if within else None

    def errors(self, done: Collection[str]) -> list[Told]:
        """What went wrong and was not made good since: of each process the last thing, in the order of time.

        Args:
            done: ids of the units that are done.
        """
        failed = {item.process for item in self._last if item.event.event == "failed"}
        last: dict[tuple[Path, str, int], Told] = {}
        for item in self._last:
            again = item.event.event == "ended" and item.process in failed  # said again as the process ends
            if _wrong(item.event) and item.event.unit not in done and not again:
                last[item.process] = item
        return sorted(last.values(), key=lambda item: item.event.time)

    def unended(self) -> list[Told]:
        """The last event of each process that was at work and has not said how it ended; it may be at work still."""
        last = {item.process: item for item in self._last}
        return [item for item in last.values() if item.event.event in ("started", "unit")]


def events_of(journal: Found) -> Iterator[Told]:
    """The events of a journal."""
    with suppress(FileNotFoundError):
        for event in read_journal(journal.path):
            yield Told(task=journal.task, rank=journal.rank, submission=journal.submission, event=event)


def _wrong(event: Event) -> bool:
    if event.event == "ended":
        return event.reason is not None and event.reason not in FINE
    return event.event == "failed" or (event.event == "unit" and event.reason is not None)


def _for_good(event: Event) -> bool:
    return event.event == "ended" and event.reason != INTERRUPTED


def _journals_in_place(folder: Path) -> Iterator[Found]:
    """Of processes that were no tasks; in the place of the submission stands the file, each of them has one."""
    with suppress(FileNotFoundError), os.scandir(folder) as entries:
        for entry in entries:
            yield Found(entry.path, "", 0, Path(entry.path), entry.stat().st_mtime)


def _journals(found: Sequence[Submitted]) -> Iterator[Found]:
    for submitted in found:
        with suppress(FileNotFoundError), os.scandir(submitted.folder / journal.FOLDER) as entries:
            for entry in entries:
                task, _, rank = entry.name.removesuffix(".jsonl").rpartition(".")
                if task and rank.isdigit():
                    yield Found(entry.path, task, int(rank), submitted.folder, entry.stat().st_mtime)
