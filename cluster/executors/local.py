"""Everything in this process, one unit after the other."""

from __future__ import annotations

import traceback

from omegaconf import OmegaConf

from cluster.executors.base import Executor, Outcome, Submission
from cluster.progress import LoggedProgress
from pipeline.config import config
from pipeline.errors import UserError
from pipeline.files import write_bytes
from pipeline.progress import Progress
from stages.base import Stage

LOG = "log.txt"
RESOLVED = "config.yaml"


class Local(Executor):
    """Runs each stage in place; a unit that fails does not stop the others, but stops the stages after it."""

    @config
    class Config:
        """Nothing to set."""

    def submit(self, submission: Submission) -> Outcome:
        """Run the chain and wait for it."""
        lines: list[str] = []
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
        write_bytes(stage.folder / RESOLVED, OmegaConf.to_yaml(OmegaConf.create(dict(submission.resolved))).encode())
        with LoggedProgress(self.progress, stage.folder / LOG) as progress:
            progress.record(f"{link}: {submission.command}")
            try:
                failed = self._units(link, stage, progress)
                if not failed:
                    stage.finish(progress)
            except UserError as error:
                failed = {link: str(error)}
            except KeyboardInterrupt:
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
        progress.say(f"{link}: {len(missing)} of {total} units to do in {stage.folder}")
        bar = progress.bar(link, total, "units", initial=total - len(missing))
        failed: dict[str, str] = {}
        try:
            for unit in missing:
                try:
                    stage.run(unit, progress)
                except UserError as error:
                    failed[f"{link}, unit {unit.id} ({unit.what})"] = str(error)
                    progress.say(f"{link}: unit {unit.id} failed, the others go on")
                else:
                    bar.advance()
        finally:
            bar.close()
        return failed
