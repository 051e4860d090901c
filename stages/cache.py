"""cache: images → representation store, with every augmented view; one unit is one input tar."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from functools import cached_property
from operator import itemgetter
from pathlib import Path
from typing import ClassVar

from pipeline.caching import CacheJob, CacheSettings
from pipeline.config import config, field_names
from pipeline.errors import UserError
from pipeline.files import read_json
from pipeline.images.packed import open_packed
from pipeline.places import OutputPlace, Place
from pipeline.progress import Progress
from pipeline.representation_store import RepresentationStore, bytes_a_row
from pipeline.representation_store.records import committed_units
from pipeline.representation_store.verify import verify
from stages.base import SetAside, Stage, Status, Unit


class Cache(Stage):
    """Cache the upstream dataset with the frozen backbone."""

    name = "cache"
    groups = ("dataset", "backbone")

    @config
    class Config(CacheSettings):
        """The settings of the cache, and where it lies."""

        operational: ClassVar[frozenset[str]] = CacheSettings.operational | {"output"}
        output: OutputPlace | None = None  # run folder; default runs/cache-<digest>

    @property
    def store_path(self) -> Place:
        """The representation store."""
        return self.folder / "store"

    def inputs(self) -> tuple[str, ...]:
        """Packed tars; none of ours when the dataset is WebDataset tars already."""
        return () if self.experiment.dataset["kind"] == "webdataset" else ("pack",)

    @cached_property
    def job(self) -> CacheJob:
        """The work, over the tars that lie there now."""
        source = self.before("pack").folder if self.inputs() else self.experiment.dataset
        settings = CacheSettings(**{name: getattr(self.config, name) for name in field_names(CacheSettings)})
        return CacheJob(
            tars=open_packed(source),
            store=self.store_path,
            backbone=self.experiment.backbone,
            settings=settings,
        )

    def prepare(self) -> None:
        """Make the run folder and the store, and see that there is room for it."""
        super().prepare()
        self.job.prepare()
        self._check_space()

    def _check_space(self) -> None:
        if not isinstance(self.folder, Path):
            return  # an object store has no end that could be asked for
        layout, missing = self.job.store.layout, len(self.job.missing())
        rows = sum(unit.samples or layout.rows for unit in layout.units) * missing / max(len(layout.units), 1)
        needed, free = int(rows * bytes_a_row(layout)), shutil.disk_usage(self.folder).free
        if needed > free:
            raise UserError(
                f"cache: about {needed / 1e9:.1f} GB are still to be written to {self.folder}, "
                f"but only {free / 1e9:.1f} GB are free there. Make room, or set output=<folder on a larger disk>."
            )

    def plan(self) -> list[Unit]:
        """Tars without a commit record."""
        units = self.job.tars.units
        return [
            Unit(id=f"{index:06d}", what=units[index].name, samples=units[index].samples, bytes=units[index].bytes)
            for index in self.job.missing()
        ]

    def run(self, unit: Unit, progress: Progress) -> None:
        """Cache one tar."""
        self.job.run(int(unit.id), progress)

    def status(self) -> Status:
        """Counted from commit and failure records."""
        done = committed_units(self.store_path / "commits")
        if not done and not (self.store_path / "run.json").exists():
            return Status(done=0, total=None)
        store = RepresentationStore.open(self.store_path)
        commits = [store.commit(unit) for unit in done]
        failures = sorted(
            (read_json(path) for path in (self.store_path / "failures").glob("*.json")), key=itemgetter("unit")
        )
        return Status(
            done=len(done),
            total=len(store.layout.units),
            samples=sum(commit.rows for commit in commits),
            quarantined=sum(len(commit.quarantined) for commit in commits),
            failed={f"{failure['unit']:06d}": failure["reason"] for failure in failures},
        )

    def set_aside(self) -> Iterator[SetAside]:
        """From the commit records."""
        if not (self.store_path / "run.json").exists():
            return
        store = RepresentationStore.open(self.store_path)
        for unit in committed_units(self.store_path / "commits"):
            commit = store.commit(unit)
            for item in commit.quarantined:
                yield SetAside(unit=f"{unit:06d}", tar=commit.name, key=item.key, reason=item.reason)

    def verify(self, progress: Progress) -> list[str]:
        """Check every byte; the commits of bad units are withdrawn, so that the same command makes them again."""
        store = RepresentationStore.open(self.store_path)
        problems = verify(store, progress)
        for unit in {problem.unit for problem in problems}:
            store.withdraw(unit)
        return [f"unit {problem.unit:06d}: {problem.what}" for problem in problems]

    def summary(self) -> list[str]:
        """What the store holds."""
        status, layout = self.status(), RepresentationStore.open(self.store_path).layout
        return [
            f"cache: {status.samples} rows × {len(layout.views)} views × {layout.width} in {status.done} units, "
            f"{status.quarantined} samples quarantined",
            f"cache: {self.store_path}",
        ]
