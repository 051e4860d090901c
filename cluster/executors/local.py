"""Everything on this machine: one unit after the other, or several side by side where there are several GPUs."""

from __future__ import annotations

import signal
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Annotated

from pydantic import Field

from cluster.executors._side_by_side import gpus, run_side_by_side
from cluster.executors.base import Executor, Outcome, Submission, write_resolved
from cluster.jobs.in_place import at_work
from cluster.process_groups import group_of_one
from cluster.progress import LoggedProgress
from pipeline.config import config
from pipeline.errors import UserError
from pipeline.interruption import Interrupted, asked_by, stop_if_asked
from pipeline.progress import Progress
from stages.base import Stage, Unit

LOG = "log.txt"


class Local(Executor):
    """Runs each stage in place; a unit that fails does not stop the others, but stops the stages after it."""

    @config
    class Config:
        """How many units are worked at once."""

        # Processes that share the units of a stage whose units do not need each other (cache), each with a GPU of its
        # own where there are several. 0 = one a GPU, and one where there is none or one.
        processes: Annotated[int, Field(ge=0)] = 0

    def submit(self, submission: Submission) -> Outcome:
        """Run the chain and wait for it.

        Raises:
            Interrupted: SIGTERM came; training has saved its checkpoint, another unit was dropped. A second one ends
                the process at once.
        """
        lines: list[str] = []
        wanted = any(stage.process_group for stage in submission.stages.values())
        with asked_by(signal.SIGTERM), group_of_one(wanted):
            for link, stage in submission.stages.items():
                failed = self._stage(link, stage, submission)
                if failed:
                    return Outcome(lines=tuple(lines), failed=failed)
                lines.extend(stage.summary())
        return Outcome(lines=tuple(lines))

    def _stage(self, link: str, stage: Stage, submission: Submission) -> dict[str, str]:
        """Run what is missing of one stage; what failed."""
        try:
            stage.prepare()
        except UserError as error:
            return {link: str(error)}
        write_resolved(stage, submission)
        with LoggedProgress(self.progress, stage.folder / LOG) as progress:
            progress.record(f"{link}: {submission.command}")
            try:
                failed = self._units(link, stage, progress)
                stop_if_asked()
                if not failed:
                    stage.finish(progress)
            except UserError as error:
                failed = {link: str(error)}
            except (KeyboardInterrupt, Interrupted):
                progress.record("stopped")
                raise
            except Exception:
                progress.record(traceback.format_exc())
                raise
            for what, reason in failed.items():
                progress.record(f"failed: {what}: {reason}")
        return failed

    def _units(self, link: str, stage: Stage, progress: Progress) -> dict[str, str]:
        """Run the missing units; which of them failed, and why."""
        missing = stage.plan()
        if not missing:
            progress.say(f"{link}: nothing to do, all is done in {stage.folder}")
            return {}
        total = stage.status().total or len(missing)
        count = min(len(missing), self.config.processes or gpus() or 1) if stage.side_by_side else 1
        beside = f", {count} at once" if count > 1 else ""
        progress.say(f"{link}: {len(missing)} of {total} units to do in {stage.folder}{beside}")
        bar = progress.bar(link, total, "units", initial=total - len(missing))
        with closing(bar), at_work(stage) as notes:
            if count > 1:
                results = run_side_by_side(stage, missing, count, notes.begin)
            else:
                results = _one_by_one(stage, missing, progress, notes.begin)
            failed: dict[str, str] = {}
            for unit, reason in results:
                notes.end(unit, reason)
                if reason is None:
                    bar.advance()
                else:
                    failed[f"{link}, unit {unit.id} ({unit.what})"] = reason
                    progress.say(f"{link}: unit {unit.id} failed, the others go on")
        return failed


def _one_by_one(
    stage: Stage, units: Sequence[Unit], progress: Progress, began: Callable[[Unit], None]
) -> Iterator[tuple[Unit, str | None]]:
    """Each unit when it is done, with the reason if it failed."""
    for unit in units:
        stop_if_asked()
        began(unit)
        try:
            stage.run(unit, progress)
        except UserError as error:
            yield unit, str(error)
        else:
            yield unit, None
