"""SLURM: missing units become arrays of tasks, stages a chain of jobs; the command returns once they are submitted.

Each stage waits for those that it reads, and for no other: heads that are compared are trained side by side.
"""

from __future__ import annotations

import getpass
import os
import pickle
import socket
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path

from submitit.core.utils import FailedJobError, FailedSubmissionError
from submitit.helpers import clean_env

from cluster.chain import read_by
from cluster.executors.base import Executor, Outcome, Submission, write_resolved
from cluster.jobs.claims import Claims, Held
from cluster.jobs.deaths import given_up
from cluster.jobs.folder import jobs_folder
from cluster.jobs.queue import QueueError, ask, cancel, job_of, queued, submitted_from
from cluster.jobs.submissions import Job, Submitted, Work, job_ids, submissions
from cluster.jobs.tasks import tasks_of
from cluster.slurm.code import commit, snapshot
from cluster.slurm.cutting import Limits, arrays, cut, fewer, limits, shares
from cluster.slurm.follow import follow
from cluster.slurm.resources import Resources, SlurmConfig, minutes
from cluster.slurm.script import make_executor
from cluster.slurm.shell import as_asked
from cluster.slurm.task import Task
from pipeline.errors import UserError
from pipeline.places import Place
from stages.base import Stage, is_done

SUBMIT = "+submit"  # the claim of whoever is submitting a stage right now
PATIENCE_SECONDS = 120.0  # with another one who is


@dataclass(kw_only=True)
class _Link:
    """One stage of the chain, while it is submitted."""

    name: str
    stage: Stage
    resources: Resources
    jobs: Path
    live: dict[str, Work] = field(default_factory=dict)  # tasks of earlier submissions that wait or run
    torn: frozenset[str] = frozenset()  # jobs of those, of which other tasks have ended
    waiting: dict[str, Submitted] = field(default_factory=dict)  # jobs of those that wait for other jobs
    made: list[str] = field(default_factory=list)  # jobs of this one
    lines: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)

    @cached_property
    def limits(self) -> Limits:
        """What the cluster takes."""
        return limits(self.resources)

    @property
    def pending(self) -> list[str]:
        """The jobs and tasks that must end well before the next stage begins.

        A job never does of which a task has failed, although what that was to do is done by another one meanwhile.
        """
        return [*dict.fromkeys(task if job_of(task) in self.torn else job_of(task) for task in self.live), *self.made]


def _awaited(stage: Stage, links: Mapping[Place, _Link]) -> list[str]:
    """The jobs and tasks that must end well before a stage begins: of what it reads, or of what that is waiting for.

    A stage in between that has no jobs of its own, or was not chosen, is no reason not to wait for those before it.
    """
    jobs: dict[str, None] = {}
    for before in read_by(stage):
        link = links.get(before.folder)
        jobs |= dict.fromkeys(link.pending if link is not None and link.pending else _awaited(before, links))
    return list(jobs)


class Slurm(Executor):
    """Submits. What is done is read from disk: the same command may be given again at any time, and twice at once."""

    Config = SlurmConfig
    config: SlurmConfig

    def submit(self, submission: Submission) -> Outcome:
        """Submit what is missing of each stage, each after those it reads; follow it if ``wait`` says so."""
        links: list[_Link] = []
        with _outside_of_jobs():
            for name, stage in submission.stages.items():
                link = self._link(name, stage)
                links.append(link)
                try:
                    self._advance(link, submission, _awaited(stage, {one.stage.folder: one for one in links[:-1]}))
                except UserError as error:
                    link.failed[name] = str(error)
                if link.failed:
                    break
        failed = {what: reason for link in links for what, reason in link.failed.items()}
        lines = [line for link in links for line in link.lines]
        if self.config.wait and not failed:
            return follow(submission.stages, shared=self.config.folder, stale_seconds=self.config.stale_seconds)
        if any(link.pending for link in links):
            lines.append("`submit status` with the same settings says how far it is, `submit logs` what failed")
        return Outcome(lines=tuple(lines), failed=failed)

    def _link(self, name: str, stage: Stage) -> _Link:
        resources = self.config.of(stage.name)
        if not (stage.side_by_side or stage.by_ranks):
            resources = resources.alone()
        elif stage.side_by_side and not stage.by_ranks:
            resources = replace(resources, nodes=1)  # more nodes are more tasks
        return _Link(name=name, stage=stage, resources=resources, jobs=jobs_folder(stage, self.config.folder))

    # -- one stage

    def _advance(self, link: _Link, submission: Submission, after: Sequence[str]) -> None:
        """Submit what is missing of a stage and what nobody has submitted yet."""
        with _sole(link.jobs):
            Stage.prepare(link.stage)  # the record of the folder alone: the first task makes ready what takes a GPU
            write_resolved(link.stage, submission)
            _look(link)
            works = self._unknown(link) if after else self._missing(link)
            if works:
                self._make(link, works, submission, after)
            elif not link.live and not link.failed and not after:
                link.stage.finish(self.progress)
                link.lines.append(f"{link.name}: nothing to do, all is done in {link.stage.folder}")
                link.lines.extend(link.stage.summary())
            if link.live:
                _wait_for(link, after)
                jobs = ", ".join(dict.fromkeys(map(job_of, link.live)))
                link.lines.append(f"{link.name}: {len(link.live)} tasks of an earlier submission go on (job {jobs})")

    def _missing(self, link: _Link) -> list[Work]:
        """Tasks for the units that are missing, that nobody is to do already and that were not given up."""
        missing, gave_up = link.stage.plan(), given_up(link.jobs)
        for unit in missing:
            if unit.id in gave_up:
                link.failed[f"{link.name}, unit {unit.id} ({unit.what})"] = gave_up[unit.id]
        taken = {unit.id for work in link.live.values() for unit in work.of(missing)}
        left = [unit.id for unit in missing if unit.id not in gave_up and unit.id not in taken]
        if not link.stage.side_by_side:
            return [Work(units=tuple(left))] if left else []
        return cut(left, link.resources, self._room(link))

    def _unknown(self, link: _Link) -> list[Work]:
        """Tasks for units that nobody knows before the stage before is done."""
        if is_done(link.stage):
            return []
        works = shares(link.resources, self._room(link)) if link.stage.side_by_side else [Work(share=(0, 1))]
        return [] if {work.share for work in works} <= {work.share for work in link.live.values()} else works

    def _room(self, link: _Link) -> int | None:
        """How many tasks the cluster takes from this user now; None = any number."""
        most = link.limits.submit
        if most is None:
            return None
        try:
            waiting = len(ask(["squeue", "--me", "--noheader", "--array", "--format=%i"]))
        except QueueError:
            waiting = 0
        return max(1, most - waiting)

    # -- jobs

    def _make(self, link: _Link, works: Sequence[Work], submission: Submission, after: Sequence[str]) -> None:
        """Submit tasks as few arrays, and record each as soon as SLURM has it."""
        stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S%f")
        path, code = self._code(link.jobs)
        record = Submitted(
            folder=link.jobs / f"{stamp}-{uuid.uuid4().hex[:4]}",
            stage=link.name,
            command=submission.command,
            host=socket.gethostname(),
            user=getpass.getuser(),
            time=time.time(),
            code=code,
            after=tuple(dict.fromkeys(map(job_of, after))),
        )
        executor = make_executor(
            record.folder,
            name=f"hedgerow-{link.stage.name}",
            resources=link.resources,
            grace_seconds=self.config.grace_seconds,
            requeue=self.config.requeue,
            path=path,
            after_jobs=after,
            kill_together=link.stage.by_ranks,
        )
        parts = arrays(works, link.limits.array)
        try:
            while parts:
                part = parts.pop(0)
                tasks = [self._task(link, record.folder, work) for work in part]
                try:
                    with as_asked(link.resources):
                        made = executor.map_array(lambda task: task(), tasks)
                except (FailedJobError, FailedSubmissionError) as error:
                    # where submitit can't read the answer, it adds advice for its own users
                    said = str(error).partition("\n")[0] if isinstance(error, FailedSubmissionError) else str(error)
                    _take_back(record, said)
                    parts = [*fewer([work for other in (part, *parts) for work in other], said)]
                    continue
                job = Job(id=job_of(made[0].job_id), array=len(part) > 1, work=tuple(part))
                record = replace(record, jobs=(*record.jobs, job))
                record.write()
                link.made.append(job.id)
        finally:
            if record.jobs:
                link.lines.append(_said(link, record))

    def _task(self, link: _Link, folder: Path, work: Work) -> Task:
        return Task(
            link=link.name,
            stage=link.stage.name,
            experiment=pickle.dumps(link.stage.experiment),
            jobs=link.jobs,
            submission=folder,
            work=work,
            minutes=minutes(link.resources.time),
            stale_seconds=self.config.stale_seconds,
        )

    def _code(self, jobs: Path) -> tuple[Path | None, str]:
        """Where the tasks find the code, if not where it is installed; and what it is."""
        if self.config.code == "snapshot":
            copy = snapshot(jobs)
            return copy, f"snapshot {copy.name}"
        return None, f"commit {commit()}" if self.config.code == "commit" else "installed"


def _look(link: _Link) -> None:
    """Which tasks of earlier submissions wait or run.

    Raises:
        UserError: nobody can tell; submitting would do work twice.
    """
    earlier = list(submissions(link.jobs))
    try:
        states = queued(job_ids(earlier), users={submitted.user for submitted in earlier})
    except QueueError as error:
        raise UserError(
            f"{link.name}: {error}, so nobody can tell which of its jobs still run. Try again when SLURM answers."
        ) from None
    tasks = tasks_of(earlier, states, {})
    link.live = {task.id: task.work for task in tasks if task.live}
    link.torn = frozenset(task.job for task in tasks if not task.live)
    link.waiting = {task.job: task.submitted for task in tasks if task.live and task.reason == "Dependency"}


def _wait_for(link: _Link, after: Sequence[str]) -> None:
    """Have jobs of earlier submissions wait for what is to end well now, be it submitted later than they were.

    What they wait for may have failed in part, and be done by others meanwhile: they would be cancelled in the end.
    """
    for job, submitted in link.waiting.items():
        if not after or set(after) == set(submitted.after):
            continue
        with suppress(QueueError):  # it has begun in this moment, perhaps
            ask(["scontrol", "update", f"JobId={job}", f"Dependency=afterok:{':'.join(after)}"])
            replace(submitted, after=tuple(dict.fromkeys(map(job_of, after)))).write()


def _take_back(record: Submitted, error: str) -> None:
    """Cancel what SLURM took although sbatch failed, as where its answer came too late: nobody would know of it.

    Raises:
        UserError: there was something.
    """
    try:
        jobs = [job for job in submitted_from(record.folder) if job not in job_ids([record])]
        cancel(jobs)
    except QueueError:  # what is not named finds nothing to do, see submitit's waiting for its pickle
        return
    if jobs:
        why = (error.splitlines() or ["no reason given"])[-1]
        raise UserError(
            f"sbatch failed ({why}), but SLURM had taken the job: {', '.join(jobs)} is cancelled. The same command "
            "tries again."
        )


def _said(link: _Link, record: Submitted) -> str:
    """What was submitted."""
    tasks = sum(len(job.work) for job in record.jobs)
    jobs = ", ".join(job.id for job in record.jobs)
    units = sum(len(work.units or ()) for job in record.jobs for work in job.work)
    what = f"{units} units in {tasks} tasks" if units else f"{tasks} tasks for what will be missing then"
    waits = f", after {', '.join(record.after)}" if record.after else ""
    return f"{link.name}: job {jobs}: {what}{waits}; logs in {record.folder}"


@contextmanager
def _sole(jobs: Path) -> Iterator[None]:
    """Nobody else submits the same stage meanwhile; one who takes too long is not waited for, claims are enough."""
    claims, end = Claims(jobs), time.monotonic() + PATIENCE_SECONDS
    try:
        while isinstance(claims.take(SUBMIT), Held) and time.monotonic() < end:
            time.sleep(0.5)
        yield
    finally:
        claims.close()


@contextmanager
def _outside_of_jobs() -> Iterator[None]:
    """What an enclosing job has in its environment does not reach the jobs that are submitted from within it."""
    if "SLURM_JOB_ID" not in os.environ:
        yield
        return
    kept = {name: os.environ[name] for name in ("SLURM_CONF", "SLURM_CLUSTERS") if name in os.environ}
    with clean_env():
        os.environ.update(kept)
        yield
