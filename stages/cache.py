"""cache: images → representation store, with every augmented view; one unit is one input tar."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from pipeline.caching.settings import CacheSettings
from pipeline.config import config, field_names
from pipeline.errors import DamagedError, UserError
from pipeline.estimate import Estimate
from pipeline.places import OutputPlace, Place
from pipeline.progress import Progress
from pipeline.representation_store.records import read_commits, record_path
from pipeline.representation_store.tally import tally
from pipeline.run_record import recall
from stages.base import SetAside, Stage, Status, Unit

if TYPE_CHECKING:
    from pipeline.caching.job import CacheJob


class Cache(Stage):
    """Cache the upstream dataset with the frozen backbone, and in the same pass with those beside it.

    Which backbones stand beside it is operational: each fills the folder that its own ``stage=cache`` would fill, with
    the same bytes, and is found there by all that follows.
    """

    name = "cache"
    groups = ("dataset", "backbone")
    side_by_side = True  # one writer a unit, and no unit needs another

    @config
    class Config(CacheSettings):
        """The settings of the cache, and where it lies."""

        operational: ClassVar[frozenset[str]] = CacheSettings.operational | {"output", "beside"}
        # Further backbones (configs/backbone) cached in the same pass: an image is read and decoded once for all.
        beside: tuple[str, ...] = ()
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
        from pipeline.caching.job import CacheJob
        from pipeline.images.packed import open_packed

        source = self.before("pack").folder if self.inputs() else self.experiment.dataset
        settings = CacheSettings(**{name: getattr(self.config, name) for name in field_names(CacheSettings)})
        stores = {stage.store_path: stage.experiment.backbone for stage in (self, *self.beside)}
        return CacheJob(tars=open_packed(source), stores=stores, settings=settings)

    @cached_property
    def beside(self) -> list[Cache]:
        """The same stage with each of the other backbones."""
        alone = replace(self.config, output=None, beside=())
        stages = {**self.experiment.stages, self.name: alone}
        return [
            Cache(replace(self.experiment, backbone=values, beside={}, stages=stages))
            for values in self.experiment.beside.values()
        ]

    def prepare(self) -> None:
        """Make the run folders and the stores, and see that there is room for them."""
        super().prepare()
        for stage in self.beside:
            Stage.prepare(stage)
        self.job.prepare()
        self._check_space()

    def _check_space(self) -> None:
        if not isinstance(self.folder, Path):
            return  # an object store has no end that could be asked for
        needed, free = self.job.bytes_to_write(), shutil.disk_usage(self.folder).free
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

    def lacks(self, unit: Unit) -> bool:
        """Whether a store has no commit record of it."""
        return any(target.lacks(int(unit.id)) for target in self.job.targets)

    def estimate(self, batches: int) -> Estimate:
        """Forward passes, bytes, files, and hours by what is known of this backbone's speed."""
        from pipeline.caching.estimate import estimate

        return estimate(self.job, batches=batches)

    def run(self, unit: Unit, progress: Progress) -> None:
        """Cache one tar."""
        self.job.run(int(unit.id), progress)

    def forget_failure(self, unit: str) -> bool:
        """From the stores of all backbones."""
        records = [
            record_path(stage.store_path / "failures", int(unit)) for stage in (self, *self.beside) if unit.isdigit()
        ]
        found = [record for record in records if record.exists()]
        for record in found:
            record.unlink(missing_ok=True)
        return bool(found)

    def status(self) -> Status:
        """Counted from commit and failure records."""
        found = tally(self.store_path)
        return Status(
            done=len(found.done),
            total=found.units,
            samples=found.rows,
            quarantined=found.quarantined,
            failed=found.failed,
            done_ids=found.done,
        )

    def set_aside(self) -> Iterator[SetAside]:
        """From the commit records."""
        from pipeline.representation_store import RepresentationStore

        if recall(self.store_path) is None:
            return
        store = RepresentationStore.open(self.store_path)
        for unit, commit in read_commits(store.commits, store.committed()):
            if isinstance(commit, DamagedError):
                raise commit
            for item in commit.quarantined:
                yield SetAside(unit=f"{unit:06d}", tar=commit.name, key=item.key, reason=item.reason)

    def verify(self, progress: Progress) -> list[str]:
        """Check every byte; what is bad is set aside, so that the same command makes it again."""
        return [problem for stage in (self, *self.beside) for problem in stage._verify(progress)]

    def _verify(self, progress: Progress) -> list[str]:
        from pipeline.representation_store.verify import discard, verify

        problems = verify(self.store_path, progress)
        discard(self.store_path, problems)
        return [str(problem) for problem in problems]

    def recompute(self, rows: int, seed: int, progress: Progress) -> list[str]:
        """Embed random rows of the store again, from their images."""
        from pipeline.caching.again import compare_again
        from pipeline.representation_store.verify import discard

        problems = compare_again(self.job, rows, seed, progress)
        discard(self.store_path, problems)
        return [str(problem) for problem in problems]

    def summary(self) -> list[str]:
        """What the store holds."""
        from pipeline.representation_store import RepresentationStore

        status, layout = self.status(), RepresentationStore.open(self.store_path).layout
        own = [
            f"cache: {status.samples} rows × {len(layout.views)} views × {layout.width} in {status.done} units, "
            f"{status.quarantined} samples quarantined",
            f"cache: {self.store_path}",
        ]
        return [*own, *(line for stage in self.beside for line in stage.summary())]
