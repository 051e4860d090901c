"""probe: task losses out of fold, for backbones without a class head for these labels.

The exact solver fits one fold a unit; the streaming solver fits all of them in one unit, in the same passes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import Field

from pipeline.config import config, field_names
from pipeline.errors import UserError
from pipeline.files import read_json, sweep_partials
from pipeline.interruption import stop_if_asked
from pipeline.places import OutputPlace, Place
from pipeline.probing.saved import FITTED, NAME, fold_name, load_probe, save_probe
from pipeline.probing.settings import ProbeSettings, is_streamed
from pipeline.progress import Progress
from pipeline.representation_store.records import committed_units, record_path
from pipeline.run_record import RUN_RECORD, check_record, refuse_other
from pipeline.sealed import read_sealed, write_sealed
from stages.base import Stage, Status, Unit

if TYPE_CHECKING:
    import torch

    from pipeline.heads.base import LinearClassifier
    from pipeline.representation_store import RepresentationStore

ALL_FOLDS = "all"  # id of the streaming solver's one unit


class Probe(Stage):
    """Fit one linear probe a fold, store what each says of the rows it never saw, and keep a probe on all rows."""

    name = "probe"
    groups = ("dataset", "backbone")
    resumes_units = True

    @config
    class Config(ProbeSettings):
        """How the probes are fitted, and where they lie."""

        operational: ClassVar[frozenset[str]] = frozenset({"output", "device", "threads", "checkpoint_seconds"})
        output: OutputPlace | None = None  # run folder; default runs/probe-<digest>
        device: str = "cpu"  # where probes are fitted and rows are scored
        threads: Annotated[int, Field(ge=1)] = 2  # stream: threads that read the store
        checkpoint_seconds: Annotated[float, Field(ge=0)] = 300.0  # stream: between checkpoints

    def inputs(self) -> tuple[str, ...]:
        """The store of the cache."""
        return ("cache",)

    @property
    def store_path(self) -> Place:
        """The representation store."""
        return self.before("cache").folder / "store"

    @property
    def records(self) -> Place:
        """The probe's own record inside the store it writes to."""
        return self.store_path / NAME

    @property
    def settings(self) -> ProbeSettings:
        """The part of the config that decides the result."""
        return ProbeSettings(**{key: getattr(self.config, key) for key in field_names(ProbeSettings)})

    def prepare(self) -> None:
        """Make the run folder, and claim the store's scores.

        Raises:
            UserError: the store holds the scores of the backbone's own classifier, or of another probe.
        """
        super().prepare()
        store = self._store()
        if store.run["classifier"]:
            raise UserError(
                f"probe: {self.store_path} already holds the scores of the backbone's own classifier. "
                "Leave stage=probe out, or cache without them: cache.classifier=off."
            )
        refuse_other(self.records / RUN_RECORD, self.meaning(), NAME)

    def plan(self) -> list[Unit]:
        """Folds without a record, or all of them and the probe on all rows as one unit.

        Raises:
            UserError: the cache is not done.
        """
        state = self.before("cache").status()
        if state.total is None or state.done < state.total:
            raise UserError(f"probe: the cache in {self.store_path} is not done. Run `submit stage=cache` first.")
        missing = [fold for fold in range(self.settings.folds) if not self._record(fold_name(fold)).exists()]
        if self._streamed:
            done = not missing and self._record(FITTED).exists()
            what = f"{self.settings.folds} folds and all rows, in the same passes over the store"
            return [] if done else [Unit(id=ALL_FOLDS, what=what, samples=state.samples)]
        return [Unit(id=str(fold), what=f"all rows but fold {fold}", samples=state.samples) for fold in missing]

    def _record(self, name: str) -> Place:
        return self.folder / f"{name}.json"

    @property  # asked anew: the cache may grow between
    def _streamed(self) -> bool:
        return is_streamed(self._store(), self.settings)

    def _store(self) -> RepresentationStore:
        from pipeline.representation_store import RepresentationStore

        return RepresentationStore.open(self.store_path)

    @property
    def _device(self) -> torch.device:
        from pipeline.devices import device_named

        return device_named(self.config.device, "probe.device")

    def run(self, unit: Unit, progress: Progress) -> None:
        """Fit the probe that never sees one fold, or all probes."""
        from pipeline.probing.exact import fit_probe
        from pipeline.probing.stream import Means, fit_stream

        store = self._store()
        if unit.id == ALL_FOLDS:
            means = Means(
                device=self._device,
                threads=self.config.threads,
                checkpoint_seconds=self.config.checkpoint_seconds,
            )
            fit_stream(store, self.settings, folder=self.folder, means=means, progress=progress)
        else:
            probe = fit_probe(store, self.settings, leave_out=int(unit.id), device=self._device, progress=progress)
            save_probe(self.folder, fold_name(int(unit.id)), probe, class_names=list(store.class_names))

    def finish(self, progress: Progress) -> None:
        """Score every row with the probe that never saw it, unit by unit; then the probe on all rows gets its record.

        The exact solver fits that probe here.
        """
        from pipeline.probing.exact import fit_probe
        from pipeline.probing.stream import clear

        if self._finished.exists():
            return
        clear(self.folder)
        store = self._store()
        self._score_all(store, progress)
        if self._streamed:
            write_sealed(self._finished, {**read_sealed(self._record(FITTED)), **self._facts(store)})
        else:
            probe = fit_probe(store, self.settings, leave_out=None, device=self._device, progress=progress)
            save_probe(self.folder, NAME, probe, class_names=list(store.class_names), **self._facts(store))

    def _score_all(self, store: RepresentationStore, progress: Progress) -> None:
        folds = [_on(load_probe(self.folder, name), self._device) for name in self._fold_names()]
        scored = set(committed_units(self.records / "commits"))
        bar = progress.bar("score out of fold", len(store.counts()), "units", initial=len(scored))
        for unit in store.counts():
            stop_if_asked()
            if unit not in scored:
                self._score(store, unit, folds)
                bar.advance()
        bar.close()

    @property
    def _finished(self) -> Place:
        return self._record(NAME)  # of the probe on all rows, which is the last thing made

    def _score(self, store: RepresentationStore, unit: int, folds: Sequence[LinearClassifier]) -> None:
        from pipeline.probing.scoring import out_of_fold_scores

        scores = out_of_fold_scores(store, unit, folds, self.settings)
        checksums = store.write_scores(unit, scores)
        sweep_partials(self.records / "commits")
        write_sealed(record_path(self.records / "commits", unit), {"unit": unit, "checksums": checksums})

    def _facts(self, store: RepresentationStore) -> dict[str, Any]:
        """What came out, out of fold, and the penalty of each probe."""
        from pipeline.probing.scoring import Census

        census = Census(store, self.settings)
        for unit in store.counts():
            census.add(unit)
        return {
            **census.facts(),
            "fold_l2": {name: read_sealed(self._record(name))["l2"] for name in self._fold_names()},
        }

    def _fold_names(self) -> list[str]:
        return [fold_name(fold) for fold in range(self.settings.folds)]

    def status(self) -> Status:
        """Folds that are fitted, the last one counting when all rows are scored; streamed: whether all is done."""
        folds = self.settings.folds
        fitted = frozenset(str(fold) for fold in range(folds) if self._record(fold_name(fold)).exists())
        finished = self._finished.exists()
        if not finished and not all((folder / RUN_RECORD).exists() for folder in (self.folder, self.store_path)):
            total = folds if fitted else None  # how it is solved is known once there is a store
            return Status(done=min(len(fitted), folds - 1), total=total, done_ids=fitted)
        samples = read_json(self._finished)["out_of_fold_rows"] if finished else 0
        if self._record(FITTED).exists() if finished else self._streamed:
            done_ids = frozenset([ALL_FOLDS] if finished else [])
            return Status(done=int(finished), total=1, samples=samples, done_ids=done_ids)
        done = len(fitted) if finished else min(len(fitted), folds - 1)
        return Status(done=done, total=folds, samples=samples, done_ids=fitted)

    def verify(self, progress: Progress) -> list[str]:
        """Check probes and scores against their records; the records of bad ones go, so that they are made again."""
        from pipeline.representation_store.verify import discard, score_problems

        store = self._store()
        problems = [problem for name in (*self._fold_names(), NAME) for problem in self._bad_probe(name)]
        if self._streamed:
            problems += self._bad_probe(NAME, FITTED)
        problems += check_record(self.records / RUN_RECORD)
        scores = list(score_problems(store, self.records / "commits"))
        discard(store.path, scores)
        problems += [str(problem) for problem in scores]
        if problems:
            self._finished.unlink(missing_ok=True)
        return problems

    def _bad_probe(self, name: str, record: str | None = None) -> list[str]:
        try:
            load_probe(self.folder, name, record=record)
        except UserError as error:
            self._record(record or name).unlink(missing_ok=True)
            return [str(error)]
        return []

    def summary(self) -> list[str]:
        """Accuracy out of fold, and where the probe lies."""
        facts = read_json(self._finished)
        shown = ", ".join(f"{view} {accuracy:.1%}" for view, accuracy in facts["accuracy"].items())
        return [f"probe: top-1 out of fold over {facts['out_of_fold_rows']} rows: {shown}", f"probe: {self.folder}"]


def _on(classifier: LinearClassifier, device: torch.device) -> LinearClassifier:
    from pipeline.heads.base import LinearClassifier

    return LinearClassifier(weight_CD=classifier.weight_CD.to(device), bias_C=classifier.bias_C.to(device))
