"""One packed collection, one or more backbones, a store for each: the work of the cache stage and of evaluation.

An image is read and decoded once for all views and all backbones; backbones that share a network share its forward
pass. Each store is, byte for byte, what its backbone would have made alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from functools import cached_property
from typing import Any

from pipeline.backbones import Group, groups, make_backbones
from pipeline.backbones.base import Backbone
from pipeline.caching.batch_size import find_batch_size
from pipeline.caching.forward import Forward
from pipeline.caching.settings import CacheSettings
from pipeline.caching.target import Row, Target
from pipeline.caching.workers import Processes, Threads, Workers, cores
from pipeline.errors import UserError
from pipeline.faults import Quarantined
from pipeline.images.packed import PackedTars
from pipeline.images.prepared import Prepared, ViewPlan
from pipeline.images.preprocessing import Preprocessing
from pipeline.images.views import ViewsOfImage
from pipeline.interruption import stop_if_asked
from pipeline.memory import keep_freed_memory
from pipeline.places import Place
from pipeline.progress import Progress
from pipeline.representation_store import Commit, RepresentationStore, bytes_a_row


class Stream:
    """Backbones that see the same batches, and the targets they fill."""

    def __init__(self, group: Group, targets: Sequence[Target], batch_size: int) -> None:
        self.targets = targets
        self.forward = Forward(group, [target.class_indices for target in targets], batch_size)
        self.preprocessing = group.network.preprocessing
        self.rows: list[Row] = []

    def begin(self) -> None:
        """Forget everything: another unit begins."""
        self.forward.begin()
        self.rows = []

    def add(self, key: str, label: int, views: ViewsOfImage) -> None:
        """Take an image."""
        self.forward.add(views.pixels, label)
        self.rows.append(Row(key=key, label=label, params_VP=views.params))


class CacheJob:
    """Cache one packed collection with one or more backbones; resumable unit by unit.

    Args:
        tars: the collection.
        stores: folder of a representation store → plain values for :func:`pipeline.backbones.make_backbone`. The first
            one is the job's own; the others are filled beside it. Backbones are loaded when they are first needed.
        settings: views, batch size, dtype …
    """

    def __init__(self, *, tars: PackedTars, stores: Mapping[Place, Mapping[str, Any]], settings: CacheSettings) -> None:
        self.tars = tars
        self.settings = settings
        self.targets = [Target(path, values, tars, settings) for path, values in stores.items()]

    @cached_property
    def backbones(self) -> list[Backbone]:
        """The frozen backbones, loaded once, in the order of the stores."""
        keep_freed_memory()
        return make_backbones([target.backbone_values for target in self.targets])

    @cached_property
    def streams(self) -> list[Stream]:
        """The backbones by group and batch size, each with an open store."""
        of_backbone = {id(backbone): target for backbone, target in zip(self.backbones, self.targets, strict=True)}
        streams = []
        for group in groups(self.backbones):
            found = next((b for b in (of_backbone[id(x)].batch_size for x in group.members) if b is not None), None)
            found = found or find_batch_size(group)
            by_size: dict[int, list[Backbone]] = {}
            for backbone in group.members:
                by_size.setdefault(of_backbone[id(backbone)].batch_size or found, []).append(backbone)
            for size, members in by_size.items():
                targets = [of_backbone[id(backbone)] for backbone in members]
                for target, backbone in zip(targets, members, strict=True):
                    target.open(backbone, size)
                streams.append(Stream(groups(members)[0], targets, size))
        return streams

    @cached_property
    def plan(self) -> ViewPlan:
        """What is made of every image for the streams."""
        return self.plan_for([stream.preprocessing for stream in self.streams])

    def plan_for(self, preprocessings: Sequence[Preprocessing]) -> ViewPlan:
        """What is made of every image for backbones with these preprocessings."""
        return ViewPlan(
            class_names=self.tars.class_names,
            unlabelled=self.settings.unlabelled,
            views=self.settings.view_names,
            seed=self.settings.seed,
            augmentation=self.settings.augmentation,
            preprocessings=tuple(preprocessings),
        )

    @cached_property
    def _workers(self) -> Workers:
        on_gpu = any(backbone.device.type == "cuda" for backbone in self.backbones)
        kind = self.settings.decode if self.settings.decode != "auto" else "processes" if on_gpu else "threads"
        return (Processes if kind == "processes" else Threads)(self.plan, self.settings.workers or cores())

    @property
    def store(self) -> RepresentationStore:
        """The job's own store; made on first use.

        Raises:
            UserError: a store of another run lies there, or the labels do not fit a required classifier.
        """
        self.prepare()
        return self.targets[0].store

    def prepare(self) -> None:
        """Load the backbones, and make the stores or check that those there are of this run."""
        _ = self.streams

    def missing(self) -> list[int]:
        """Units that a store lacks, without loading a backbone."""
        return sorted({unit for target in self.targets for unit in target.missing()})

    def bytes_to_write(self) -> int:
        """About how many bytes are still to be stored, before compression."""
        needed = 0
        for target in self.targets:
            layout = target.store.layout
            rows = sum(layout.units[unit].samples or layout.rows for unit in target.missing())
            needed += rows * bytes_a_row(layout)
        return needed

    def run(self, unit: int, progress: Progress) -> list[Commit]:
        """Cache one unit and commit it in every store that lacks it; gives the commits.

        Raises:
            UserError: the tar is broken, or more samples than the failure budget were quarantined; the reason is kept
                in ``<store>/failures``.
            Interrupted: somebody asked to stop; nothing of the unit is kept.
        """
        started = time.time()
        self.prepare()
        lacking = [target for target in self.targets if target.lacks(unit)]
        streams = [stream for stream in self.streams if any(target in lacking for target in stream.targets)]
        bar = progress.bar(self.tars.units[unit].name, self.tars.units[unit].samples, "images")
        try:
            quarantined, waited = self._pass(unit, streams, bar.advance)
        except UserError as error:
            for target in lacking:
                target.note_failure(unit, error)
            raise
        finally:
            bar.close()
        commits, errors = [], []
        for stream in streams:
            answers = stream.forward.results(len(self.settings.view_names))
            for target, said in zip(stream.targets, answers, strict=True):
                if target not in lacking:
                    continue
                try:
                    commits.append(target.write(unit, stream.rows, said, quarantined))
                except UserError as error:  # of this backbone alone, perhaps: the others' stores get theirs
                    errors.append(error)
                    continue
                facts = {
                    "seconds": round(time.time() - started, 3),
                    "waited_for_images": round(waited, 3),  # seconds: large = decoding is what takes the time
                    "halved_batches": stream.forward.halved,
                }
                target.note_telemetry(unit, facts)
        if errors:
            raise errors[0]
        return commits

    def _pass(
        self, unit: int, streams: Sequence[Stream], advance: Callable[[int], None]
    ) -> tuple[list[Quarantined], float]:
        """Send a unit's images through the backbones; what was left out, and for how long images were waited for."""
        quarantined: list[Quarantined] = []
        waited = 0.0
        for stream in streams:
            stream.begin()
        with closing(self._workers.map(self.tars.samples(unit))) as images:
            while True:
                stop_if_asked()
                asked = time.perf_counter()
                image: Prepared | None = next(images, None)
                waited += time.perf_counter() - asked
                if image is None:
                    return quarantined, waited
                advance(1)
                if image.reason:
                    quarantined.append(Quarantined(key=image.key, reason=image.reason))
                    continue
                for stream, views in zip(self.streams, image.views, strict=True):
                    if stream in streams:
                        stream.add(image.key, image.label, views)
