"""probe: task losses out of fold, for backbones without a class head for these labels; one unit is one fold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import linear

from pipeline.backbones.probe import NAME, ProbeSettings, fit_probe, fold_of, load_probe, save_probe
from pipeline.caching.forward import classifier_scores
from pipeline.config import config, field_names
from pipeline.errors import UserError
from pipeline.files import read_json, sweep_partials
from pipeline.heads.base import LinearClassifier
from pipeline.places import OutputPlace, Place
from pipeline.progress import Progress
from pipeline.representation_store import RepresentationStore
from pipeline.representation_store.records import committed_units, record_path
from pipeline.representation_store.verify import discard, score_problems
from pipeline.run_record import RUN_RECORD, check_record, refuse_other
from pipeline.sealed import write_sealed
from stages.base import Stage, Status, Unit


class Probe(Stage):
    """Fit one linear probe a fold, store what each says of the rows it never saw, and keep a probe on all rows."""

    name = "probe"
    groups = ("dataset", "backbone")

    @config
    class Config(ProbeSettings):
        """How the probes are fitted, and where they lie."""

        operational: ClassVar[frozenset[str]] = frozenset({"output", "device"})
        output: OutputPlace | None = None  # run folder; default runs/probe-<digest>
        device: str = "cpu"  # where the fits run

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
        store = RepresentationStore.open(self.store_path)
        if store.run["classifier"]:
            raise UserError(
                f"probe: {self.store_path} already holds the scores of the backbone's own classifier. "
                "Leave stage=probe out, or cache without them: cache.classifier=off."
            )
        refuse_other(self.records / RUN_RECORD, self.meaning(), NAME)

    def plan(self) -> list[Unit]:
        """Folds without a record.

        Raises:
            UserError: the cache is not done.
        """
        state = self.before("cache").status()
        if state.total is None or state.done < state.total:
            raise UserError(f"probe: the cache in {self.store_path} is not done. Run `submit stage=cache` first.")
        return [
            Unit(id=str(fold), what=f"all rows but fold {fold}", samples=state.samples)
            for fold in range(self.settings.folds)
            if not self._record(fold).exists()
        ]

    def _record(self, fold: int) -> Place:
        return self.folder / f"fold-{fold}.json"

    def run(self, unit: Unit, progress: Progress) -> None:
        """Fit the probe that never sees one fold."""
        self._fit(f"fold-{unit.id}", int(unit.id), progress)

    def _fit(self, name: str, leave_out: int | None, progress: Progress, **more: Any) -> None:
        store, device = RepresentationStore.open(self.store_path), torch.device(self.config.device)
        probe = fit_probe(store, self.settings, leave_out=leave_out, device=device, progress=progress)
        save_probe(self.folder, name, probe, class_names=list(store.class_names), **more)

    def finish(self, progress: Progress) -> None:
        """Score every row with the probe that never saw it, unit by unit, and fit the probe on all rows."""
        if self._finished.exists():
            return
        store = RepresentationStore.open(self.store_path)
        folds = [load_probe(self.folder, name) for name in self._fold_names()]
        scored = set(committed_units(self.records / "commits"))
        bar = progress.bar("score out of fold", len(store.counts()), "units", initial=len(scored))
        for unit in store.counts():
            if unit not in scored:
                self._score(store, unit, folds)
                bar.advance()
        bar.close()
        self._fit(NAME, None, progress, **self._facts(store))

    @property
    def _finished(self) -> Place:
        return self.folder / f"{NAME}.json"  # of the probe on all rows, which is the last thing made

    def _score(self, store: RepresentationStore, unit: int, folds: Sequence[LinearClassifier]) -> None:
        scores = out_of_fold_scores(store, unit, folds, self.settings)
        checksums = store.write_scores(unit, scores)
        sweep_partials(self.records / "commits")
        write_sealed(record_path(self.records / "commits", unit), {"unit": unit, "checksums": checksums})

    def _facts(self, store: RepresentationStore) -> dict[str, Any]:
        """What came out, out of fold: accuracy and loss of each view over labelled rows."""
        labelled_N = store.load("label") >= 0
        correct_NV, loss_NV = store.load("top1_correct")[labelled_N], store.load("task_loss")[labelled_N]
        return {
            "out_of_fold_rows": int(labelled_N.sum()),
            "accuracy": dict(zip(store.layout.views, correct_NV.mean(axis=0).tolist(), strict=True)),
            "task_loss": dict(zip(store.layout.views, loss_NV.mean(axis=0, dtype=np.float64).tolist(), strict=True)),
            "fold_l2": {name: read_json(self.folder / f"{name}.json")["l2"] for name in self._fold_names()},
        }

    def _fold_names(self) -> list[str]:
        return [f"fold-{fold}" for fold in range(self.settings.folds)]

    def status(self) -> Status:
        """Folds that are fitted; the last one counts when all rows are scored, too."""
        folds = self.settings.folds
        done = sum(self._record(fold).exists() for fold in range(folds))
        finished = self._finished.exists()
        return Status(
            done=done if finished else min(done, folds - 1),
            total=folds,
            samples=read_json(self._finished)["out_of_fold_rows"] if finished else 0,
        )

    def verify(self, progress: Progress) -> list[str]:
        """Check probes and scores against their records; the records of bad ones go, so that they are made again."""
        store = RepresentationStore.open(self.store_path)
        problems = [problem for name in (*self._fold_names(), NAME) for problem in self._bad_probe(name)]
        problems += check_record(self.records / RUN_RECORD)
        scores = list(score_problems(store, self.records / "commits"))
        discard(store.path, scores)
        problems += [str(problem) for problem in scores]
        if problems:
            self._finished.unlink(missing_ok=True)
        return problems

    def _bad_probe(self, name: str) -> list[str]:
        try:
            load_probe(self.folder, name)
        except UserError as error:
            (self.folder / f"{name}.json").unlink(missing_ok=True)
            return [str(error)]
        return []

    def summary(self) -> list[str]:
        """Accuracy out of fold, and where the probe lies."""
        facts = read_json(self._finished)
        shown = ", ".join(f"{view} {accuracy:.1%}" for view, accuracy in facts["accuracy"].items())
        return [f"probe: top-1 out of fold over {facts['out_of_fold_rows']} rows: {shown}", f"probe: {self.folder}"]


def out_of_fold_scores(
    store: RepresentationStore, unit: int, folds: Sequence[LinearClassifier], settings: ProbeSettings
) -> dict[str, NDArray[Any]]:
    """What is said of a unit's rows by the probes that never saw them.

    Returns:
        ``task_loss`` and ``entropy`` (n, V) float32 in nats, ``top1_correct`` (n, V) bool; as in the cache.
    """
    representation_NVD = torch.from_numpy(store.representation(unit))
    count, views = representation_NVD.shape[:2]
    fold_N = np.array([fold_of(key.decode(), settings) for key in store.read("key", unit)], dtype=int)
    label_N = store.read("label", unit)
    own_class = torch.arange(len(store.class_names))
    scores: dict[str, NDArray[Any]] = {
        "task_loss": np.empty((count, views), np.float32),
        "entropy": np.empty((count, views), np.float32),
        "top1_correct": np.empty((count, views), bool),
    }
    for fold in np.unique(fold_N):
        here, classifier = np.flatnonzero(fold_N == fold), folds[fold]
        logits_NVC = linear(representation_NVD[here], classifier.weight_CD, classifier.bias_C)
        labels = np.repeat(label_N[here], views).tolist()
        for name, value in classifier_scores(logits_NVC.flatten(0, 1), labels, own_class).items():
            scores[name][here] = value.reshape(-1, views).numpy()
    return scores
