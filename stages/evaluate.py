"""evaluate: R@1, R-AUROC and AURC of the head, of heads beside it and of the baselines; one unit is one dataset.

A downstream dataset is packed and cached by the very stages ``pack`` and ``cache``, as an experiment of its own with
the view ``center`` alone. Their folders are functions of dataset and backbone, so another head finds them done and is
scored in seconds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field

from pipeline.config import config, to_plain
from pipeline.datasets import make_dataset
from pipeline.errors import UserError
from pipeline.files import read_json, sha256_file, write_bytes, write_json
from pipeline.heads import make_head
from pipeline.places import OutputPlace, Place
from pipeline.progress import Progress
from pipeline.training.sweep import points
from stages.base import SetAside, Stage, Status, Unit, is_done, make_stage

if TYPE_CHECKING:
    import torch

    from pipeline.evaluation import Contender
    from pipeline.evaluation.contenders import Role
    from pipeline.heads.base import LinearClassifier, Summary

UPSTREAM = "upstream"
VIEW = "center"
#: Settings of the cache that hold for downstream datasets too.
CACHED_ALIKE = (
    *("batch_size", "dtype", "compressor", "compression_level"),
    *("max_quarantined", "workers", "decode"),
)


class Evaluate(Stage):
    """Score heads on the upstream dataset and on every downstream dataset, and write the report."""

    name = "evaluate"
    groups = ("dataset", "backbone", "head", "downstream", "compare")
    resumes_units = True

    @config
    class Config:
        """What is measured."""

        operational: ClassVar[frozenset[str]] = frozenset({"device", "output"})

        metric: Literal["cosine", "l2"] = "cosine"  # of the nearest neighbours
        upstream_rows: Annotated[int, Field(ge=0)] = 5000  # of the upstream store, chosen by key; 0 = leave it out
        extremes: Annotated[int, Field(ge=0, le=200)] = 12  # most and least certain images shown of each dataset
        device: str = "auto"  # auto: a GPU if there is one
        output: OutputPlace | None = None  # run folder; default runs/evaluate-<digest>

    def inputs(self) -> tuple[str, ...]:
        """The store, the trained head, and the probe where it gave the losses."""
        probed = self.experiment.stages["train_head"].task_loss == "probe"
        return ("cache", "train_head", "probe") if probed else ("cache", "train_head")

    # -- units

    @property
    def collections(self) -> list[str]:
        """Ids of the units: upstream first, unless it is left out."""
        return [*([UPSTREAM] if self.config.upstream_rows else []), *self.experiment.downstream]

    def _result(self, unit: str) -> Place:
        return self.folder / "results" / f"{unit}.json"

    @property
    def _all_results(self) -> Place:
        return self.folder / "results.json"

    def plan(self) -> list[Unit]:
        """Datasets without a result.

        Raises:
            UserError: no dataset is named or one is not there, a stage before is not done, a head is not trained.
        """
        if not self.collections:
            raise UserError("evaluate: no dataset to evaluate; name some, e.g. evaluate.datasets=[digit_pairs_unseen].")
        missing = [name for name in self.collections if not self._result(name).exists()]
        if missing:
            self._require_inputs()
        if problems := [problem for problem in self.sources().values() if problem]:
            raise UserError("\n".join(problems))
        return [Unit(id=name, what=self._title(name)) for name in missing]

    def sources(self) -> Mapping[str, str]:
        """The downstream datasets without a result; one that is cached need not be there any more."""
        return {name: self._problem(name) for name in self.experiment.downstream if not self._result(name).exists()}

    def _problem(self, name: str) -> str:
        try:
            if not is_done(self.cache_of(name)):
                make_dataset(self.experiment.downstream[name], f"downstream.{name}").check()
        except UserError as error:
            return f"downstream.{name}: {error} (What is called dataset.… there is downstream.{name}.… here.)"
        return ""

    def _require_inputs(self) -> None:
        views = self.experiment.stages["cache"].views
        if self.config.upstream_rows and VIEW not in views:
            raise UserError(
                f"evaluate: the upstream cache has no view '{VIEW}', only cache.views={list(views)}. "
                "Add it there, or leave the upstream dataset out: evaluate.upstream_rows=0."
            )
        for name in self.inputs():
            require_done(self.before(name), f"submit stage={name}")
        for name, values in self._compared().items():
            if make_head(values).needs.training:
                stage = make_stage("train_head", self.experiment.with_head(values))
                require_done(stage, f"submit stage=train_head head={name}")

    def _title(self, unit: str) -> str:
        return f"{self.experiment.dataset['name']} (upstream)" if unit == UPSTREAM else unit

    def cache_of(self, unit: str) -> Stage:
        """The cache of a dataset: the experiment's own, or that of an experiment with this dataset and one view."""
        if unit == UPSTREAM:
            return self.before("cache")
        caching = self.experiment.stages["cache"]
        alone = type(caching)(views=(VIEW,), classifier="off", **{key: getattr(caching, key) for key in CACHED_ALIKE})
        packing = replace(self.experiment.stages["pack"], output=None)
        stages = {**self.experiment.stages, "pack": packing, "cache": alone}
        experiment = replace(self.experiment, dataset=self.experiment.downstream[unit], stages=stages)
        return make_stage("cache", experiment)

    def run(self, unit: Unit, progress: Progress) -> None:
        """Cache the dataset if need be, score every contender, write rows, thumbnails and, last, the result."""
        from pipeline.evaluation import Scorer, collection_results, read_rows, row_table, score_all, write_table
        from pipeline.representation_store import RepresentationStore

        cache = self.cache_of(unit.id)
        if unit.id != UPSTREAM:
            complete(cache, progress)
        rows = read_rows(
            RepresentationStore.open(cache.folder / "store"),
            view=VIEW,
            most=self.config.upstream_rows if unit.id == UPSTREAM else None,
        )
        scorer = Scorer(rows, metric=self.config.metric, device=self._device)
        scored = score_all(scorer, self._contenders, progress)
        table = self.folder / "rows" / f"{unit.id}.npz"
        write_table(table, row_table(scorer, scored))
        result = collection_results(scorer, scored, extremes=self.config.extremes)
        self._add_thumbnails(unit.id, cache, result["extremes"])
        about = make_dataset(cache.experiment.dataset).about
        self._all_results.unlink(missing_ok=True)
        named = {"id": unit.id, "dataset": self._title(unit.id), "about": asdict(about)}
        role = {"role": UPSTREAM if unit.id == UPSTREAM else "downstream", "digest": self.digest}
        write_json(self._result(unit.id), {**named, **role, **result, "rows_sha256": sha256_file(table)})

    @property
    def _device(self) -> torch.device:
        from pipeline.devices import device_named

        return device_named(self.config.device, "evaluate.device")

    def _add_thumbnails(self, unit: str, cache: Stage, extremes: Mapping[str, Any] | None) -> None:
        """Show the extremes of a downstream dataset; upstream images stay where they are."""
        from pipeline.images.packed import open_packed
        from pipeline.report.thumbnails import add_thumbnails

        items = [item for key in ("least_certain", "most_certain") for item in (extremes or {}).get(key, ())]
        if unit == UPSTREAM or not items:
            for item in items:
                item["thumbnail"] = None
            return
        tars = open_packed(cache.before("pack").folder if cache.inputs() else cache.experiment.dataset)
        add_thumbnails(items, tars.paths, self.folder, f"thumbnails/{unit}")

    # -- contenders

    def _compared(self) -> dict[str, Mapping[str, Any]]:
        """The heads beside the experiment's own, which is not compared with itself."""
        return {name: values for name, values in self.experiment.compare.items() if values != self.experiment.head}

    @cached_property
    def _contenders(self) -> list[Contender]:
        """The experiment's head first, then those beside it, then the baselines that are not among them."""
        from pipeline.evaluation.contenders import BASELINES, describe, untrained

        head, seeds = self.experiment.head, self.experiment.stages["train_head"].seeds
        found = self._trained(describe(head), "head", head)
        for name, values in self._compared().items():
            if make_head(values).needs.training:
                found += self._trained(name, "compare", values)
            else:
                found.append(untrained(name, "compare", values, self._summary, seeds))
        kinds = {item.config["kind"] for item in found}
        left = [kind for kind in BASELINES if kind not in kinds]
        return [*found, *(untrained(kind, "baseline", {"kind": kind}, self._summary, seeds) for kind in left)]

    def _trained(self, name: str, role: Role, head: Mapping[str, Any]) -> list[Contender]:
        """A head's seeds; where values were swept, at each point, of which the first has the role."""
        from pipeline.evaluation.contenders import trained

        stage = make_stage("train_head", self.experiment.with_head(head))
        return [
            trained(
                f"{name} {of.name}".strip(),
                "compare" if place else role,
                head,
                of.folder(stage.folder),
                stage.config.seeds,
            )
            for place, of in enumerate(points(stage.config))
        ]

    @cached_property
    def _summary(self) -> Summary:
        """Of the upstream store, with the probe on all rows, or the backbone's own classifier."""
        from pipeline.backbones import make_backbone
        from pipeline.probing.saved import load_probe
        from pipeline.representation_store import RepresentationStore
        from pipeline.training.summary import summarise

        classifier: LinearClassifier | None
        if "probe" in self.inputs():
            classifier = load_probe(self.before("probe").folder)
        else:
            classifier = make_backbone(self.experiment.backbone).classifier()
        return summarise(RepresentationStore.open(self.before("cache").folder / "store"), classifier)

    # -- all together

    def _results(self) -> list[dict[str, Any]]:
        return [read_json(self._result(name)) for name in self.collections if self._result(name).exists()]

    def finish(self, progress: Progress) -> None:
        """Write the report, its plots, the table, and last ``results.json``."""
        from pipeline.evaluation.contenders import describe
        from pipeline.report import About, as_markdown, write_report

        if self._all_results.exists():
            return
        results = self._results()
        about = About(
            title=f"{self.experiment.name}: uncertainty of {describe(self.experiment.head)}",
            command=f"submit stage=evaluate experiment={self.experiment.name}",
            digest=self.digest,
            config=to_plain(self.meaning()),
        )
        write_report(self.folder, results, about)
        write_bytes(self.folder / "table.md", as_markdown(results).encode())
        write_json(self._all_results, {"experiment": self.experiment.name, "digest": self.digest, "results": results})

    def status(self) -> Status:
        """Datasets with a result; the last one counts when the report is there."""
        results, total = self._results(), len(self.collections)
        counts = [result["counts"] for result in results]
        return Status(
            done=len(results) if self._all_results.exists() else min(len(results), max(0, total - 1)),
            total=total,
            samples=sum(count["rows"] for count in counts),
            quarantined=sum(count["quarantined"] for count in counts),
            done_ids=frozenset(result["id"] for result in results),
        )

    def set_aside(self) -> Iterator[SetAside]:
        """Of the downstream datasets, in the caches made for them; units are called ``<dataset>/<unit>``."""
        for name in self.experiment.downstream:
            for sample in self.cache_of(name).set_aside():
                yield replace(sample, unit=f"{name}/{sample.unit}")

    def verify(self, progress: Progress) -> list[str]:
        """Check the tables of rows against their results; a bad one's result goes, so that it is made again."""
        problems = []
        for result in self._results():
            table = self.folder / "rows" / f"{result['id']}.npz"
            if not table.exists() or sha256_file(table) != result["rows_sha256"]:
                problems.append(f"{result['id']}: {table} is not what was written")
                self._result(result["id"]).unlink()
        return problems

    def summary(self) -> list[str]:
        """The table of results, and where the report is."""
        from pipeline.report.table import as_text

        return [*as_text(self._results()), f"evaluate: {self.folder / 'report.html'}"]


def require_done(stage: Stage, command: str) -> None:
    """Raise UserError with the command that is still to be given, unless the stage is done."""
    if not is_done(stage):
        raise UserError(f"evaluate: needs {stage.folder}, which is not done. Run: {command}")


def complete(stage: Stage, progress: Progress) -> None:
    """Do what is missing of a stage, after what is missing of the stages that it reads."""
    for name in stage.inputs():
        complete(stage.before(name), progress)
    if not is_done(stage):
        stage.prepare()
        for unit in stage.plan():
            stage.run(unit, progress)
    stage.finish(progress)
