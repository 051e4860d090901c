"""evaluate: R@1, R-AUROC and AURC of the head, of heads beside it and of the baselines; one unit is one dataset.

Where its datasets lie, and how they are cached: ``stages/_evaluated.py``. What was scored is written first, then the
analyses of each collection, then, when all are there, the comparisons and the report
(``pipeline/analyses/_records.py``).
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field

from pipeline.analyses import QUICK, chosen
from pipeline.analyses._damage import take_away_damage
from pipeline.analyses._records import Records
from pipeline.config import config, to_plain
from pipeline.errors import UserError
from pipeline.heads import make_head
from pipeline.places import OutputPlace
from pipeline.progress import Progress
from stages._evaluated import UPSTREAM, VIEW, Evaluated
from stages.base import SetAside, Stage, Status, Unit, complete, is_done, make_stage

if TYPE_CHECKING:
    from pipeline.evaluation import Contender
    from pipeline.evaluation.collection import Collection
    from pipeline.evaluation.contenders import Role
    from pipeline.heads.base import Summary


class Evaluate(Stage):
    """Score heads on the upstream dataset and on every downstream dataset, and write the report."""

    name = "evaluate"
    groups = ("dataset", "backbone", "head", "downstream", "compare")
    resumes_units = True

    @config
    class Config:
        """What is measured."""

        operational: ClassVar[frozenset[str]] = frozenset({"analyses", "search", "device", "output"})
        later: ClassVar[frozenset[str]] = frozenset({"without_shots"})

        metric: Literal["cosine", "l2"] = "cosine"  # of the nearest neighbours
        upstream_rows: Annotated[int, Field(ge=0)] = 5000  # of the upstream store, chosen by key; 0 = leave it out
        # few-shot: leave the rows of so many shots out of the test, and not those of train_head.shots alone; then all
        # numbers of shots up to this one, and the head before training, are judged on the same rows
        without_shots: Annotated[int, Field(ge=1)] | None = None
        # beside center, for view_rows images of a downstream dataset: crops, interventions, blur_3 … (see cache.views)
        views: tuple[str, ...] = ()
        views_of: tuple[str, ...] = ()  # the downstream datasets that get them; none named: all
        view_rows: Annotated[int, Field(ge=1)] = 500  # so many images, chosen by the hash of their keys
        # measured and shown beside the scores: quick (all that take seconds), all, names, -name to leave one out; one
        # that is added later takes the stored scores
        analyses: tuple[str, ...] = (QUICK,)
        device: str = "auto"  # auto: a GPU if there is one
        # what seeks neighbours: our own products of tiles, or faiss on the CPU (extra faiss); the result is the same
        search: Literal["ours", "faiss"] = "ours"
        output: OutputPlace | None = None  # run folder; default runs/evaluate-<digest>

    def inputs(self) -> tuple[str, ...]:
        """The store, the trained head, and the probe where it gave the losses."""
        probed = self.experiment.stages["train_head"].task_loss == "probe"
        return ("cache", "train_head", "probe") if probed else ("cache", "train_head")

    # -- units

    @cached_property
    def evaluated(self) -> Evaluated:
        """The datasets, and where they lie."""
        return Evaluated(self.experiment)

    @cached_property
    def _records(self) -> Records:
        return Records(self.folder, self.evaluated.ids, chosen(self.config.analyses))

    def plan(self) -> list[Unit]:
        """Datasets without a result, or without one of the analyses.

        Raises:
            UserError: no such view, no dataset is named or one is not there, a stage before is not done, a head is not
                trained.
        """
        from pipeline.images.views import expand

        if not self.evaluated.ids:
            raise UserError("evaluate: no dataset to evaluate; name some, e.g. evaluate.datasets=[digit_pairs_unseen].")
        if unknown := sorted(set(self.config.views_of) - set(self.experiment.downstream)):
            raise UserError(f"evaluate.views_of: {', '.join(unknown)} is not among evaluate.datasets.")
        self._refuse_leak()
        self.evaluated.refuse_shots()
        expand(self.config.views)  # a name that is none is refused before any work
        missing = [name for name in self.evaluated.ids if self._records.measured(name) is None]
        if missing:
            self._records.require()
            self._require_faiss()
            self._require_inputs()
        if problems := [problem for problem in self.sources().values() if problem]:
            raise UserError("\n".join(problems))
        return [Unit(id=name, what=self.evaluated.title(name)) for name in missing]

    def sources(self) -> Mapping[str, str]:
        """The downstream datasets without a result; one that is cached need not be there any more."""
        return {
            name: self.evaluated.problem(name)
            for name in self.experiment.downstream
            if self._records.scored(name) is None
        }

    def _refuse_leak(self) -> None:
        from pipeline.training.subset import has_parts

        training = self.experiment.stages["train_head"]
        if (seen := self.evaluated.seen()) and training.shots is None and not has_parts(training):
            raise UserError(
                f"evaluate.datasets: {', '.join(seen)} is the very dataset that heads are trained on, or a part of it, "
                "or has it as a part: that is not unseen, and the dataset of training is evaluated as the upstream one "
                f"already (evaluate.upstream_rows). Name another, or split it: dataset.split=seen "
                f"downstream.{seen[0]}.split=unseen, where it has splits."
            )

    def _require_faiss(self) -> None:
        if self.config.search == "faiss":
            from pipeline.metrics.faiss_candidates import import_faiss

            import_faiss()

    def _require_inputs(self) -> None:
        views = self.experiment.stages["cache"].views
        if self.config.upstream_rows and VIEW not in views:
            raise UserError(
                f"evaluate: the upstream cache has no view '{VIEW}', only cache.views={list(views)}. "
                "Add it there, or leave the upstream dataset out: evaluate.upstream_rows=0."
            )
        needed = {f"submit stage={name}": self.before(name) for name in self.inputs()}
        for name, values in self._compared().items():
            if make_head(values).fitted:
                trained = make_stage("train_head", self.experiment.with_head(values))
                needed[f"submit stage=train_head head={name}"] = trained
        for command, stage in needed.items():
            if not is_done(stage):
                raise UserError(f"evaluate: needs {stage.folder}, which is not done. Run: {command}")

    def run(self, unit: Unit, progress: Progress) -> None:
        """Cache the dataset if need be, score every contender unless that is done, measure the analyses it lacks."""
        from pipeline.metrics.nearest import searching

        if unit.id != UPSTREAM:
            complete(self.evaluated.cache_of(unit.id), progress)
        if (views := self.evaluated.cache_of_views(unit.id)) is not None:
            complete(views, progress)
        self._records.together.unlink(missing_ok=True)
        with searching(self.config.search):
            if self._records.scored(unit.id) is None:
                self._score(unit.id, progress)
            self._records.measure(self._collection(unit.id), progress)

    def _score(self, unit: str, progress: Progress) -> None:
        from pipeline.devices import device_named
        from pipeline.evaluation import Scorer, collection_results, row_table, score_all

        device = device_named(self.config.device, "evaluate.device")
        scorer = Scorer(self.evaluated.rows(unit), metric=self.config.metric, device=device)
        scored = score_all(scorer, self._contenders, progress)
        named = {**self.evaluated.described(unit), "digest": self.digest}
        self._records.write_scored(unit, row_table(scorer, scored), {**named, **collection_results(scorer, scored)})

    def _collection(self, unit: str) -> Collection:
        """A collection that was scored, for the analyses."""
        from pipeline.devices import device_named
        from pipeline.evaluation.collection import Collection, Sources

        sources = Sources(
            table=self._records.table(unit),
            chosen=lambda: self.evaluated.chosen(unit),
            changed=self.evaluated.changed(unit),
            annotations=lambda: self.evaluated.annotations(unit),
            contenders=lambda: self._contenders,
            tars=None if unit == UPSTREAM else lambda: self.evaluated.tars(unit),  # upstream images stay where they are
            device=device_named(self.config.device, "evaluate.device"),
        )
        result = self._records.scored(unit)
        assert result is not None, unit
        return Collection(result, sources)

    # -- contenders

    def _compared(self) -> dict[str, Mapping[str, Any]]:
        """The heads beside the experiment's own, which is not compared with itself."""
        return {name: values for name, values in self.experiment.compare.items() if values != self.experiment.head}

    @cached_property
    def _contenders(self) -> list[Contender]:
        from pipeline.evaluation.contenders import before_training, line_up

        training = self.experiment.stages["train_head"]
        heads = self.experiment.head, self._compared()
        found = line_up(*heads, self._trained, lambda: self._summary, training.seeds)
        return found if training.init_from is None else [*found, before_training(training.init_from, training.seeds)]

    def _trained(self, name: str, role: Role, head: Mapping[str, Any]) -> list[Contender]:
        from pipeline.evaluation.contenders import trained_at_points
        from pipeline.tuning.choice import chosen_head

        stage = make_stage("train_head", self.experiment.with_head(head))
        if "tune" in stage.inputs():
            head = chosen_head(head, stage.before("tune").folder)
        return trained_at_points(name, role, head, stage.folder, stage.config)

    @cached_property
    def _summary(self) -> Summary:
        from pipeline.representation_store import RepresentationStore
        from pipeline.training.summary import frozen_classifier, summarise

        probe = self.before("probe").folder if "probe" in self.inputs() else None
        classifier = frozen_classifier(probe, self.experiment.backbone)
        return summarise(RepresentationStore.open(self.before("cache").folder / "store"), classifier)

    # -- all together

    def finish(self, progress: Progress) -> None:
        """Measure the comparisons and write the report."""
        from pipeline.evaluation.contenders import describe
        from pipeline.metrics.nearest import searching
        from pipeline.report.build import About

        if self._records.is_reported():
            return
        with searching(self.config.search):
            self._records.compare([self._collection(unit) for unit in self.evaluated.ids], progress)
        about = About(
            title=f"{self.experiment.name}: uncertainty of {describe(self.experiment.head)}",
            command=shlex.join(["submit", "stage=evaluate", *self.experiment.settings]),
            digest=self.digest,
            config=to_plain(self.meaning()),
        )
        self._records.write_report(about, self.experiment.name)

    def status(self) -> Status:
        """Datasets with a result and all analyses; the last one counts when the report is there."""
        records, total = self._records, len(self.evaluated.ids)
        done = {unit: found["counts"] for unit in self.evaluated.ids if (found := records.measured(unit)) is not None}
        return Status(
            done=len(done) if records.is_reported() else min(len(done), max(0, total - 1)),
            total=total,
            samples=sum(counts["rows"] for counts in done.values()),
            quarantined=sum(counts["quarantined"] for counts in done.values()),
            done_ids=frozenset(done),
        )

    def set_aside(self) -> Iterator[SetAside]:
        """Of the downstream datasets, in the caches made for them; units are called ``<dataset>/<unit>``."""
        for name in self.experiment.downstream:
            for sample in self.evaluated.cache_of(name).set_aside():
                yield replace(sample, unit=f"{name}/{sample.unit}")

    def verify(self, progress: Progress) -> list[str]:
        """Check records, tables of rows and the report; what is bad goes, so that it is made again."""
        return take_away_damage(self._records)

    def summary(self) -> list[str]:
        """The table of results, and where the report is."""
        from pipeline.report.table import as_text

        return [*as_text(self._records.results()), f"evaluate: {self.folder / 'report.html'}"]
