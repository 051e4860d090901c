"""Ending jobs of a run, and no others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cluster.jobs.cancelled import note_cancelled
from cluster.jobs.queue import cancel, queued
from cluster.jobs.submissions import Submitted
from cluster.jobs.tasks import tasks_of


@dataclass(frozen=True, kw_only=True)
class Ended:
    """A job that was told to end; ``states``: how many of its tasks were in which."""

    link: str
    job: str
    states: Mapping[str, int]


def cancel_jobs(records: Mapping[str, Sequence[Submitted]]) -> list[Ended]:
    """End what waits or runs of these submissions, from the end of the chain, so that nothing starts in between.

    A job is ended if it stands in the records and in the queue, as one of this user's whose script lies in the folder
    of the submission: a number alone may be another's.

    Args:
        records: the submissions of stages, by the words that choose them, in the order of the chain.

    Raises:
        cluster.jobs.queue.QueueError: nobody can tell what runs, or scancel does not answer.
    """
    known = queued([job.id for found in records.values() for submitted in found for job in submitted.jobs])
    ended = []
    for link, found in reversed(list(records.items())):
        live = [task for task in tasks_of(found, known, {}) if task.live]
        for folder in dict.fromkeys(task.submitted.folder for task in live):
            note_cancelled(folder)
        jobs = list(dict.fromkeys(task.job for task in reversed(live)))
        if jobs:
            cancel(jobs)
        ended += [
            Ended(link=link, job=job, states=Counter(task.state for task in live if task.job == job)) for job in jobs
        ]
    return ended
