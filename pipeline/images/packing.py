"""Image collection → WebDataset tars with a manifest, one tar at a time, the same bytes on every run.

A folder of packed tars::

    listing/          what the source holds, where that takes long to find out
    plan.json         how many samples go into how many tars, and a digest of the listing
    tars/00000.tar    <key>.<extension>, <key>.cls (label), <key>.json (class name, source), …
    records/00000.json   written when its tar is whole: samples, bytes, sha256
    annotations.npz   votes of annotators, what is relevant to what; of datasets that have them
    manifest.json     written when all tars are
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from pipeline.annotations import FILE as ANNOTATIONS
from pipeline.annotations import save_annotations
from pipeline.config import parse, to_plain
from pipeline.datasets.base import Dataset, LabelledImage
from pipeline.digests import canonical_json
from pipeline.errors import DamagedError, UserError
from pipeline.files import atomic_file, read_json, sha256_file, sweep_partials, write_json
from pipeline.images.manifest import (
    FILE,
    TARS,
    Manifest,
    Source,
    TarRecord,
    load_manifest,
    save_manifest,
)
from pipeline.images.packed import PackedTars, open_packed
from pipeline.interruption import stop_if_asked
from pipeline.many_files import file_names
from pipeline.places import Place
from pipeline.progress import Progress
from pipeline.sealed import read_open, write_sealed

__all__ = ["Manifest", "PackJob", "PackPlan", "PackedTars", "load_manifest", "open_packed", "plan_tars", "write_tar"]

PLAN = "plan.json"
RECORDS = "records"
LISTING = "listing"
SAMPLES_PER_TAR = 8192
MIN_TARS = 12


@dataclass(frozen=True, kw_only=True)
class PackPlan:
    """Which samples go into which tar: consecutive ones of the dataset's order, numbers as equal as can be."""

    samples: int
    tars: int

    def bounds(self, index: int) -> range:
        """Numbers of the samples in tar ``index``."""
        return range(index * self.samples // self.tars, (index + 1) * self.samples // self.tars)


def plan_tars(samples: int, *, samples_per_tar: int = SAMPLES_PER_TAR, min_tars: int = MIN_TARS) -> PackPlan:
    """As few tars as hold ``samples_per_tar`` each, but at least ``min_tars``, and none empty."""
    if samples == 0:
        raise UserError("the dataset has no images: check dataset.root and dataset.split")
    return PackPlan(samples=samples, tars=min(samples, max(min_tars, -(-samples // samples_per_tar))))


def tar_name(index: int) -> str:
    """File name of tar ``index``."""
    return f"{index:05d}.tar"


def write_tar(
    dataset: Dataset, plan: PackPlan, index: int, folder: Place, advance: Callable[[int], None] = lambda count: None
) -> TarRecord:
    """Write tar ``index`` and its record below ``folder``; the bytes depend on the images alone.

    Args:
        dataset: the images.
        plan: which of them go into this tar.
        index: of the tar.
        folder: of the packed collection.
        advance: is told of every sample written.

    Raises:
        Interrupted: somebody asked to stop; there is no such tar.
    """
    path = folder / TARS / tar_name(index)
    sweep_partials(path.parent, path.name)  # of a killed writer of this tar
    label = {name: number for number, name in enumerate(dataset.class_names())}
    bounds = plan.bounds(index)
    longest, written = 0, 0
    with atomic_file(path) as file, tarfile.open(fileobj=file, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for image in dataset.part(bounds.start, bounds.stop):
            stop_if_asked()
            for extension, data in _members(image, label).items():
                info = tarfile.TarInfo(f"{image.key}.{extension}")  # owner 0, time 0, mode 0o644
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
            longest, written = max(longest, len(image.key.encode())), written + 1
            advance(1)
    assert written == len(bounds), f"{type(dataset).__name__} gave {written} images for a length of {len(bounds)}"
    record = TarRecord(
        name=path.name,
        samples=written,
        bytes=path.stat().st_size,
        sha256=sha256_file(path),
        longest_key=longest,
    )
    write_sealed(_record_path(folder, index), to_plain(record))
    return record


def _members(image: LabelledImage, label: Mapping[str, int]) -> dict[str, bytes]:
    about = {"class": image.class_name, "source": image.source}
    members = {image.extension: image.data}
    if image.class_name is not None:
        members["cls"] = str(label[image.class_name]).encode()
    return {**members, "json": canonical_json(about).encode()}


def _record_path(folder: Place, index: int) -> Place:
    return folder / RECORDS / f"{index:05d}.json"


class PackJob:
    """Pack one dataset into one folder; resumable tar by tar.

    Args:
        dataset: the images; not touched any more once the manifest is there.
        folder: of the packed collection.
        kind: of the dataset, for the manifest.
        samples_per_tar, min_tars: see :func:`plan_tars`.
    """

    def __init__(
        self,
        dataset: Dataset,
        folder: Place,
        *,
        kind: str,
        samples_per_tar: int = SAMPLES_PER_TAR,
        min_tars: int = MIN_TARS,
    ) -> None:
        self.dataset = dataset
        self.folder = folder
        self.kind = kind
        self.samples_per_tar = samples_per_tar
        self.min_tars = min_tars
        dataset.keep_listing_in(folder / LISTING)

    @property
    def finished(self) -> bool:
        """The manifest is there."""
        return (self.folder / FILE).exists()

    @cached_property
    def plan(self) -> PackPlan:
        """The plan for the images that are there now.

        Raises:
            UserError: something is missing, or the images have changed since packing began.
        """
        self.dataset.check()
        plan = plan_tars(len(self.dataset), samples_per_tar=self.samples_per_tar, min_tars=self.min_tars)
        path = self.folder / PLAN
        if path.exists() and read_json(path) != self._plan_record(plan):
            old = read_json(path)
            raise UserError(
                f"{self.folder}: the dataset has changed since packing began: {old['samples']} images then, "
                f"{plan.samples} now, with another listing. Remove that folder to pack it anew, or restore the images."
            )
        return plan

    @property
    def recorded_plan(self) -> PackPlan | None:
        """The plan that packing began with, without looking at the images; None before it has."""
        if self.finished:
            manifest = load_manifest(self.folder)
            return PackPlan(samples=manifest.samples, tars=len(manifest.tars))
        path = self.folder / PLAN
        if not path.exists():
            return None
        record = read_json(path)
        return PackPlan(samples=record["samples"], tars=record["tars"])

    def _plan_record(self, plan: PackPlan) -> dict[str, Any]:
        return {**asdict(plan), "listing": self.dataset.listing()}

    def prepare(self) -> None:
        """Write the plan, or check that the one there is of these images."""
        if not self.finished:
            write_json(self.folder / PLAN, self._plan_record(self.plan))
            self.dataset.keep_listing()

    def recorded(self) -> list[int]:
        """Tars that are whole and recorded."""
        return sorted(int(name.removesuffix(".json")) for name in file_names(self.folder / RECORDS, ".json"))

    def record(self, index: int) -> TarRecord:
        """The record of a finished tar."""
        path = _record_path(self.folder, index)
        return parse(TarRecord, read_open(path), str(path))

    def missing(self) -> list[int]:
        """Tars still to be written."""
        if self.finished:
            return []
        done = set(self.recorded())
        return [index for index in range(self.plan.tars) if index not in done]

    def run(self, index: int, progress: Progress) -> TarRecord:
        """Write one tar and its record."""
        bar = progress.bar(tar_name(index), len(self.plan.bounds(index)), "images")
        try:
            return write_tar(self.dataset, self.plan, index, self.folder, bar.advance)
        finally:
            bar.close()

    def finish(self) -> None:
        """Write the annotations, if there are any, and the manifest, once no tar is missing."""
        if self.finished:
            return
        if (annotations := self.dataset.annotations()) is not None:
            save_annotations(annotations, self.folder)
        about = self.dataset.about
        manifest = Manifest(
            dataset=Source(
                kind=self.kind,
                name=self.dataset.config.name,
                title=about.title,
                source=about.source,
                licence=about.licence,
                citation=about.citation,
            ),
            class_names=tuple(self.dataset.class_names()),
            left_out=self.dataset.left_out(),
            annotations=None if annotations is None else sha256_file(self.folder / ANNOTATIONS),
            tars=tuple(self.record(index) for index in range(self.plan.tars)),
        )
        save_manifest(manifest, self.folder)

    def verify(self, progress: Progress) -> dict[int, str]:
        """Hash every recorded tar; what is wrong, by tar. Records of bad tars are withdrawn: they are missing again.

        A record that is damaged is withdrawn like that of a bad tar, and so is a plan that cannot be read.
        """
        with suppress(FileNotFoundError):
            try:
                read_json(self.folder / PLAN)
            except DamagedError:
                (self.folder / PLAN).unlink()
        indices = self.recorded()
        bar = progress.bar("verify", len(indices), "tars")
        wrong: dict[int, str] = {}
        for index in indices:
            path = self.folder / TARS / tar_name(index)
            try:
                digest = self.record(index).sha256
            except DamagedError:
                wrong[index] = f"{_record_path(self.folder, index)} is damaged"
                continue
            if not path.exists():
                wrong[index] = f"{path} is missing"
            elif sha256_file(path) != digest:
                wrong[index] = f"{path} has changed: its sha256 is not {digest}"
            bar.advance(1)
        bar.close()
        for index in wrong:
            (self.folder / FILE).unlink(missing_ok=True)
            _record_path(self.folder, index).unlink()
        return wrong
