"""Which logs tell of what failed, and of a unit."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from cluster.jobs.history import History, Told, events_of
from cluster.jobs.logs import Log, logs_in


def failures(history: History, done: Collection[str], at_work: Collection[str], before: float) -> list[Log]:
    """Of every process that something failed in, or that ended without a word; oldest first.

    Args:
        history: of the stage.
        done: ids of units that are done: what failed of them was made good.
        at_work: ids of tasks that hold a claim.
        before: seconds since 1970; what began later may have had no time to say anything.
    """
    logs = {told.process: _log(told) for told in history.errors(done)}
    for told in history.unended():
        silent = told.task not in at_work and told.event.time < before
        if silent and told.event.unit not in done and told.process not in logs:
            said = f" {told.event.unit}" if told.event.unit else ""
            logs[told.process] = replace(_log(told), why=f"no word since it began{said}")
    mute = history.started - {journal.task for journal in history.journals}
    for log in [log for submitted in history.submissions for log in logs_in(submitted.folder)] if mute else []:
        if log.task in mute and log.time < before:
            logs[log.folder, log.task, log.rank] = replace(log, why="ended before it could begin")
    return sorted(logs.values(), key=lambda log: log.time)


def of_unit(unit: str, history: History) -> list[Log]:
    """Of the processes that were at a unit, oldest first."""
    last: dict[tuple[str, int], Told] = {}
    mark = f'"{unit}"'.encode()
    for journal in history.journals:
        if mark in journal.path.read_bytes():
            at_it = [told for told in events_of(journal) if told.event.unit == unit]
            if at_it:
                last[journal.task, journal.rank] = at_it[-1]
    return sorted((_log(told) for told in last.values()), key=lambda log: log.time)


def _log(told: Told) -> Log:
    event = told.event
    unit = f"unit {event.unit}: " if event.unit else ""
    what = {"unit": "begun"}.get(event.event, event.event)
    reason = f": {event.reason}" if event.reason else ""
    return Log(task=told.task, rank=told.rank, folder=told.submission, why=f"{unit}{what}{reason}", time=event.time)
