"""What one task of a job does: its units, in order, one commit after the other; and what it does when it must stop.

It is started by submitit, once a rank. The ranks of a stage whose units stand alone take the task's units as each is
free; those of a stage that trains over ranks run every unit together; of any other stage the first rank works alone.
"""

from __future__ import annotations

import os
import pickle
import socket
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from submitit import JobEnvironment

from cluster.jobs import history
from cluster.jobs.claims import BEAT_SECONDS, Claims, Held
from cluster.jobs.deaths import MOST, deaths, forget_deaths, note_death, reason_of
from cluster.jobs.journal import Journal, journal_path
from cluster.jobs.submissions import Work
from cluster.progress import LineProgress
from cluster.slurm.notice import Notice
from cluster.slurm.ranks import choose_gpu, process_group
from cluster.slurm.script import AGAIN, ASK, FAILED, STOPPED
from cluster.streams import show_what_can_be_shown
from pipeline.errors import LeftError, LostError, UserError
from pipeline.interruption import Interrupted, stop_asked
from pipeline.progress import Silent
from stages.base import Stage, Unit, make_stage

PREPARE, FINISH, START = "+prepare", "+finish", "+start"  # claims that are no unit's


@dataclass(frozen=True, kw_only=True)
class Task:
    """All a task needs to know; pickled.

    Attributes:
        link: the words that chose the stage in the chain.
        stage: its name.
        experiment: the whole config, pickled: opened once signals are listened to, since it brings torch along.
        jobs: folder of the stage's job records.
        submission: folder of this submission.
        work: the units.
        minutes: time limit.
        stale_seconds: of claims.
    """

    link: str
    stage: str
    experiment: bytes
    jobs: Path
    submission: Path
    work: Work
    minutes: int
    stale_seconds: float

    def __call__(self) -> None:
        """Work, and end with an exit code other than 0 if anything is not done."""
        show_what_can_be_shown()
        code = Runner(self, JobEnvironment()).run()
        if code:
            sys.stdout.flush()
            sys.exit(code)


class Runner:
    """One rank of a task at work."""

    def __init__(self, task: Task, env: JobEnvironment) -> None:
        self.task, self.env = task, env
        self.rank, self.ranks = env.global_rank, env.num_tasks
        self.restart = int(os.environ.get("SLURM_RESTART_COUNT", "0"))
        self.claims = Claims(task.jobs, task=env.job_id, restart=self.restart, stale_seconds=task.stale_seconds)
        self.journal = Journal(
            journal_path(task.submission, env.job_id, self.rank),
            host=socket.gethostname(),
            node=os.environ.get("SLURMD_NODENAME", ""),
            restart=self.restart,
        )
        self.progress = LineProgress(lambda line: print(line, flush=True))
        self.notice = Notice(env.job_id, minutes=task.minutes, restart=self.restart)
        self.done = 0
        self.failed: dict[str, str] = {}
        self._tell: Callable[[Unit | None], object] = lambda unit: None  # to the other ranks of this unit

    # -- from start to end

    def run(self) -> int:
        """Work until all is done, or must stop; the exit code."""
        self.notice.listen()
        choose_gpu(self.env)
        stage: Stage | None = None
        try:
            self.journal.note("started")
            stage = make_stage(self.task.stage, pickle.loads(self.task.experiment))
            if stage.by_ranks and (self.ranks > 1 or stage.process_group):
                self._together(stage)
            elif self.rank == 0 or stage.side_by_side:
                self._alone(stage)
        except (Interrupted, KeyboardInterrupt):
            code = {True: AGAIN, False: STOPPED, None: ASK}[self.notice.goes_on()]
            if self.rank and stage is not None and stage.by_ranks:
                code = 0  # srun ends all ranks when one fails, and the first one may not have put its things away yet
        except UserError as error:
            self.failed[self.task.link] = str(error)
            code = FAILED
        except Exception as error:
            traceback.print_exc()
            self.failed[self.task.link] = f"{type(error).__name__}: {error}"
            code = FAILED
        else:
            code = FAILED if self.failed else 0
        finally:
            self.claims.close()
        self._report(code)
        return code

    def _report(self, code: int) -> None:
        for what, reason in self.failed.items():
            print(f"failed: {what}: {reason}", file=sys.stderr, flush=True)
        try:
            self.journal.note("ended", reason=self._ending(code))
        except OSError:  # no room, perhaps; the exit code says it, too
            traceback.print_exc()

    def _ending(self, code: int) -> str | None:
        if code == FAILED:
            return next(iter(self.failed.values()))
        return {AGAIN: history.INTERRUPTED, STOPPED: history.STOPPED, ASK: history.STOPPED}.get(code)

    def _alone(self, stage: Stage) -> None:
        """The units of this task, as one process among others."""
        self._prepare(stage)
        units = self.task.work.of(stage.plan())
        held = [unit for unit in units if not self._unit(stage, unit)]
        for unit in held:  # an afterok must not be met by work that somebody else has not finished
            self._wait(lambda unit=unit: self._unit(stage, unit), unit.id)  # type: ignore[misc]
        if not self.failed and not stage.plan():
            with self._sole(FINISH):
                stage.finish(self.progress)

    def _together(self, stage: Stage) -> None:
        """The units of this task, each by all ranks at once: the first rank decides which, and tells the others."""
        with process_group(self.env) as told:
            if self.rank == 0:
                self._tell = told
                try:
                    self._alone(stage)
                except (LostError, LeftError):
                    self._leave()
                finally:
                    told(None)
            else:
                self._follow(stage, told)

    def _follow(self, stage: Stage, told: Callable[[Unit | None], Unit | None]) -> None:
        """Run what the first rank says, until it says that there is nothing more."""
        ended: BaseException | None = None
        while (unit := told(None)) is not None:
            try:
                stage.run(unit, Silent())
            except LostError:  # who ended says why
                self.journal.note("ended", unit.id)
                self._exit()
            except UserError:  # the first rank reports it
                continue
            except Interrupted as error:
                ended = error
            except Exception:
                traceback.print_exc()
                self.journal.note("ended", unit.id, traceback.format_exc(limit=1))
                self._exit()
        if ended is not None or stop_asked():
            raise Interrupted

    def _leave(self) -> NoReturn:
        """Say what failed, and end without a word to the other ranks, which would not hear it."""
        self.claims.close()
        self._report(FAILED)
        self._exit()

    def _exit(self) -> NoReturn:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(FAILED)  # at once: the others wait for this one, and srun ends them

    # -- one unit

    def _unit(self, stage: Stage, unit: Unit) -> bool:
        """Do a unit; False if somebody else is at it."""
        if stop_asked():
            raise Interrupted
        claim = self.claims.take(unit.id)
        if isinstance(claim, Held):
            return False
        try:
            if not stage.lacks(unit):
                self.journal.note("skipped", unit.id, "somebody else did it")
                return True
            if claim.death:
                note_death(self.task.jobs, unit.id, claim.death)
            known = deaths(self.task.jobs, unit.id)
            if len(known) >= MOST:
                self._fail(unit, reason_of(known))
                return True
            self.journal.note("unit", unit.id, claim.death or None)
            self._run(stage, unit)
        finally:
            self.claims.give_back(unit.id)
        return True

    def _run(self, stage: Stage, unit: Unit) -> None:
        self._tell(unit)
        try:
            stage.run(unit, self.progress)
        except UserError as error:
            self._fail(unit, str(error))
            if isinstance(error, LostError):
                raise
        except Exception as error:  # of this unit alone, perhaps: the others are still tried
            traceback.print_exc()
            self._fail(unit, f"{type(error).__name__}: {error}")
            if isinstance(error, LeftError):
                raise
        except (Interrupted, KeyboardInterrupt):
            why = self.notice.why()
            self.journal.note("dropped", unit.id, why)
            if self.notice.of_time_limit() and not self.done and not stage.resumes_units:  # nor would the next time be
                note_death(self.task.jobs, unit.id, f"{why}, which is too short for this unit: raise cluster.time")
            raise
        else:
            self.done += 1
            forget_deaths(self.task.jobs, unit.id)
            self.journal.note("done", unit.id)

    def _fail(self, unit: Unit, reason: str) -> None:
        self.failed[f"{self.task.link}, unit {unit.id} ({unit.what})"] = reason
        self.journal.note("failed", unit.id, reason)

    # -- what only one may do at a time

    def _prepare(self, stage: Stage) -> None:
        """Make ready; where nothing was begun yet, one after the other, so that all go on with what the first found."""
        claim = self.claims.take(name := f"{START}-{self.env.job_id}-{self.rank}")
        if not isinstance(claim, Held) and claim.death:
            known = note_death(self.task.jobs, name, claim.death)
            if len(known) >= MOST:
                raise UserError(f"{self.task.link}: {reason_of(known)}")
        if stage.status().total is None:
            with self._sole(PREPARE):
                stage.prepare()
        else:
            stage.prepare()
        if not isinstance(claim, Held):
            self.claims.give_back(name)

    @contextmanager
    def _sole(self, name: str) -> Iterator[None]:
        self._wait(lambda: not isinstance(self.claims.take(name), Held), name)
        try:
            yield
        finally:
            self.claims.give_back(name)

    def _wait(self, got: Callable[[], bool], what: str) -> None:
        """Ask again and again until it is so."""
        told = False
        while not got():
            if stop_asked():
                raise Interrupted
            if not told:
                self.journal.note("waiting", what)
                told = True
            time.sleep(BEAT_SECONDS / 5)
