"""pack: image folders, IDX files, or tars of one class each → WebDataset tars with a manifest; one unit is one tar."""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, ClassVar

from pydantic import Field

from pipeline.config import config
from pipeline.datasets import make_dataset
from pipeline.datasets.webdataset import WebDataset
from pipeline.images.manifest import verify_manifest
from pipeline.images.packing import MIN_TARS, SAMPLES_PER_TAR, PackJob, load_manifest, tar_name
from pipeline.places import OutputPlace
from pipeline.progress import Progress
from stages.base import Stage, Status, Unit


class Pack(Stage):
    """Pack the upstream dataset into tars."""

    name = "pack"
    groups = ("dataset",)

    @config
    class Config:
        """How the images are divided, and where the tars lie."""

        operational: ClassVar[frozenset[str]] = frozenset({"output"})
        samples_per_tar: Annotated[int, Field(ge=1)] = SAMPLES_PER_TAR  # at most; tars are equally full
        min_tars: Annotated[int, Field(ge=1, le=99_999)] = MIN_TARS  # at least, so that as many workers find work
        output: OutputPlace | None = None  # run folder; default runs/pack-<digest>

    def inputs(self) -> tuple[str, ...]:
        """Packing is the first stage."""
        return ()

    @cached_property
    def job(self) -> PackJob | None:
        """The work; None for a dataset that is tars already."""
        dataset = make_dataset(self.experiment.dataset)
        if isinstance(dataset, WebDataset):
            return None
        return PackJob(
            dataset,
            self.folder,
            kind=str(self.experiment.dataset["kind"]),
            samples_per_tar=self.config.samples_per_tar,
            min_tars=self.config.min_tars,
        )

    def prepare(self) -> None:
        """Make the run folder and fix the plan."""
        super().prepare()
        if self.job is not None:
            self.job.prepare()

    def plan(self) -> list[Unit]:
        """Tars without a record; none when the dataset is tars already."""
        if self.job is None:
            make_dataset(self.experiment.dataset).check()
            return []
        return [
            Unit(id=_id(index), what=tar_name(index), samples=len(self.job.plan.bounds(index)))
            for index in self.job.missing()
        ]

    def run(self, unit: Unit, progress: Progress) -> None:
        """Write one tar and its record."""
        assert self.job is not None, "tars are not packed again"
        self.job.run(int(unit.id), progress)

    def finish(self, progress: Progress) -> None:
        """Write the manifest."""
        if self.job is not None:
            self.job.finish()

    def status(self) -> Status:
        """Counted from the records of the tars."""
        if self.job is None:
            return Status(done=0, total=0)
        recorded, planned = self.job.recorded(), self.job.recorded_plan
        return Status(
            done=len(recorded),
            total=None if planned is None else planned.tars,
            samples=0 if planned is None else sum(len(planned.bounds(index)) for index in recorded),
            done_ids=frozenset(map(_id, recorded)),
        )

    def verify(self, progress: Progress) -> list[str]:
        """Hash every tar and the annotations, read all records; bad ones go, so that they are written again."""
        if self.job is None:
            return []
        beside = verify_manifest(self.folder)
        wrong = [f"unit {_id(index)}: {what}" for index, what in self.job.verify(progress).items()]
        return [*wrong, beside] if beside else wrong

    def summary(self) -> list[str]:
        """What was packed and what was left out."""
        if self.job is None:
            return [f"pack: nothing to do, {self.experiment.dataset['root']} holds tars already"]
        manifest = load_manifest(self.folder)
        size = sum(tar.bytes for tar in manifest.tars)
        return [
            f"pack: {manifest.samples} images of {len(manifest.class_names)} classes in {len(manifest.tars)} tars, "
            f"{size / 1e6:.1f} MB",
            *(f"pack: left out {count}: {reason}" for reason, count in manifest.left_out.items()),
            f"pack: {self.folder}",
        ]


def _id(index: int) -> str:
    """Of the unit that makes tar ``index``."""
    return f"{index:05d}"
