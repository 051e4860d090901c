"""tune: representation store → settings of a head, chosen on classes held out of training; one unit is one trial."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from pipeline.config import config, meaning
from pipeline.errors import DamagedError, UserError
from pipeline.places import OutputPlace, Place
from pipeline.progress import Progress
from pipeline.sealed import read_sealed, write_sealed
from pipeline.tuning.choice import RECORD, choose, describe, read_choice
from pipeline.tuning.settings import SearchConfig
from stages.base import Stage, Status, Unit, is_done


class Tune(Stage):
    """Look for the learning rate and the settings of the experiment's head; ``train_head.tuned=true`` takes them."""

    name = "tune"
    groups = ("dataset", "backbone", "head")
    side_by_side = True
    resumes_units = True

    @config
    class Config(SearchConfig):
        """How settings are looked for, and where the trials lie."""

        operational: ClassVar[frozenset[str]] = frozenset({"output"})

        output: OutputPlace | None = None  # run folder; default runs/tune-<digest>

    @property
    def _training(self) -> Any:
        """The config of ``train_head`` as every trial has it, but for what it tries."""
        training = self.experiment.stages["train_head"]
        return replace(training, seeds=(self.config.seed,), tuned=False, output=None, engine="auto")  # no ranks here

    def inputs(self) -> tuple[str, ...]:
        """What training a head reads."""
        probed = self.experiment.stages["train_head"].task_loss == "probe"
        return ("cache", "probe") if probed else ("cache",)

    def meaning(self) -> Mapping[str, Any]:
        """How trials are trained decides as well."""
        return {**super().meaning(), "training": meaning(self._training)}

    # -- trials

    @property
    def _choice(self) -> Place:
        return self.folder / RECORD

    def _record(self, name: str) -> Place:
        return self.folder / f"{name}.json"

    def _names(self, trials: int) -> list[str]:
        return [f"trial-{trial:02d}" for trial in range(trials)]

    def plan(self) -> list[Unit]:
        """Trials without a record.

        Raises:
            UserError: a stage before is not done, or trials would have to sweep or to start from another head.
        """
        from pipeline.tuning.trial import trials_of

        if self._choice.exists():
            return []
        if any(vars(self._training.sweep).values()):
            raise UserError("tune: every trial is one head: leave train_head.sweep out.")
        if self._training.init_from is not None:
            raise UserError("tune: every trial starts from weights that are drawn: leave train_head.init_from out.")
        for name in self.inputs():
            if not is_done(self.before(name)):
                raise UserError(f"tune: {name} is not done in {self.before(name).folder}. Run: submit stage={name}")
        kind, names = self.experiment.head["kind"], self._names(trials_of(self.experiment.head, self.config.trials))
        samples = self._training.total_steps * self._training.batch_size
        return [Unit(id=name, what=f"{kind}, {name}", samples=samples) for name in names if not self._there(name)]

    def _there(self, name: str) -> bool:
        return self._record(name).exists()

    def run(self, unit: Unit, progress: Progress) -> None:
        """Train the head of a trial and judge it."""
        from pipeline.representation_store import RepresentationStore
        from pipeline.training.subset import limit
        from pipeline.training.summary import classifier_for
        from pipeline.tuning.trial import perform, setting

        trial = int(unit.id.rpartition("-")[2])
        training, head = self._training, self.experiment.head
        probe = self.before("probe").folder if "probe" in self.inputs() else None
        perform(
            setting(head, training, self.config, trial),
            store=limit(RepresentationStore.open(self.before("cache").folder / "store"), training),
            classifier=classifier_for(head, probe, self.experiment.backbone),
            search=self.config,
            folder=self.folder / unit.id,
            record=self._record(unit.id),
            progress=progress,
        )

    def finish(self, progress: Progress) -> None:
        """Choose."""
        from pipeline.tuning.trial import trials_of

        if not self._choice.exists():
            names = self._names(trials_of(self.experiment.head, self.config.trials))
            records = [read_sealed(self._record(name)) for name in names]
            write_sealed(self._choice, choose(records, self.config.least_r_at_1))

    # -- what people ask

    def status(self) -> Status:
        """Trials with a record; the last one counts when the choice is made."""
        names = self._names(self.config.trials)
        there = [name for name in names if self._there(name)]
        if self._choice.exists():
            return Status(done=len(there), total=len(there), samples=self._seen(there), done_ids=frozenset(there))
        done = min(len(there), len(names) - 1)
        return Status(done=done, total=len(names), samples=self._seen(there), done_ids=frozenset(there))

    def _seen(self, there: list[str]) -> int:
        return int(len(there) * self._training.total_steps * self._training.batch_size)

    def verify(self, progress: Progress) -> list[str]:
        """Check the records; a bad one goes, and the choice with it, so that both are made again."""
        problems = []
        records = {f"unit {name}: ": self._record(name) for name in self._names(self.config.trials)}
        for what, record in {**records, "": self._choice}.items():
            try:
                read_sealed(record)
            except FileNotFoundError:
                continue
            except DamagedError as error:
                problems.append(f"{what}{error}")
                record.unlink(missing_ok=True)
                self._choice.unlink(missing_ok=True)
        return problems

    def summary(self) -> list[str]:
        """What was chosen, and where the trials lie."""
        return [f"tune: {self.experiment.head['kind']}: {describe(read_choice(self.folder))}", f"tune: {self.folder}"]
