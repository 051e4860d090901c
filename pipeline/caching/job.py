"""One packed collection, one backbone, one store: the work of the cache stage and of evaluation, unit by unit."""

from __future__ import annotations

import math
import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pipeline.backbones import make_backbone
from pipeline.backbones.base import Backbone
from pipeline.backbones.memory import keep_freed_memory
from pipeline.caching.forward import Forward
from pipeline.caching.ordered_map import ordered_map
from pipeline.caching.settings import CacheSettings
from pipeline.config import to_plain
from pipeline.errors import UserError
from pipeline.faults import BadSample, Quarantined
from pipeline.files import read_json, sweep_partials, write_json
from pipeline.images.decode import decode
from pipeline.images.packed import PackedTars
from pipeline.images.tars import TarSample, label_of, read_tar
from pipeline.images.views import VIEW_PARAMS, make_views
from pipeline.places import Place
from pipeline.progress import Progress
from pipeline.representation_store import (
    Commit,
    RepresentationStore,
    StoreLayout,
    UnitRows,
    fit_rows,
)
from pipeline.representation_store.encoding import in_range
from pipeline.representation_store.records import committed_units, record_path
from pipeline.run_record import RUN_RECORD

Array = NDArray[Any]


@dataclass(frozen=True, kw_only=True)
class _Prepared:
    """One image on its way: its views' pixels (V, H, W, 3) uint8, or why it was left out."""

    key: str
    label: int
    pixels_VHWC: Array | None = None
    params_VP: Array | None = None
    reason: str = ""


class CacheJob:
    """Cache one packed collection with one backbone; resumable unit by unit.

    Args:
        tars: the collection.
        store: folder of the representation store.
        backbone: plain values for :func:`pipeline.backbones.make_backbone`; loaded when first needed.
        settings: views, batch size, dtype …
    """

    def __init__(self, *, tars: PackedTars, store: Place, backbone: Mapping[str, Any], settings: CacheSettings) -> None:
        self.tars = tars
        self.path = store
        self.settings = settings
        self._backbone_values = backbone

    @cached_property
    def backbone(self) -> Backbone:
        """The frozen backbone, loaded once."""
        keep_freed_memory()
        return make_backbone({**self._backbone_values, **self._resolved()})

    def _resolved(self) -> dict[str, Any]:
        """What ``auto`` meant on the machine that began the store: others that go on with it do the same."""
        record = self.path / RUN_RECORD
        if not record.exists():
            return {}
        began = read_json(record)["meaning"]["backbone"]
        resolved = {"compute": began["compute"], "channels_last": "on" if began["channels_last"] else "off"}
        return {key: value for key, value in resolved.items() if self._backbone_values.get(key, "auto") == "auto"}

    @cached_property
    def store(self) -> RepresentationStore:
        """The store this job fills; made on first use.

        Raises:
            UserError: a store of another run lies there, or the labels do not fit a required classifier.
        """
        width = self.backbone.width
        rows, chunk_rows = fit_rows(self.tars.max_samples, width, self.settings.dtype)
        layout = StoreLayout(
            units=self.tars.units,
            rows=rows,
            views=self.settings.view_names,
            width=width,
            view_params=VIEW_PARAMS,
            key_bytes=self.tars.longest_key,
            dtype=self.settings.dtype,
            compressor=self.settings.compressor,
            compression_level=self.settings.compression_level,
            chunk_rows=chunk_rows,
        )
        run = {
            "backbone": to_plain(self.backbone.describe()),
            "class_names": list(self.tars.class_names),
            "classifier": self.class_indices is not None,
            "seed": self.settings.seed,
            "augmentation": to_plain(self.settings.augmentation) if self.settings.random_views else None,
            "batch_size": self.settings.batch_size,
        }
        return RepresentationStore.create(self.path, layout, run)

    @cached_property
    def class_indices(self) -> Tensor | None:
        """Label → class of the backbone's own head, or None when its scores are not cached.

        Raises:
            UserError: ``classifier=required`` and a label has no class there.
        """
        own, ours = self.backbone.class_names, self.tars.class_names
        if self.settings.classifier == "off" or not ours:
            return None
        index = {name: i for i, name in enumerate(own or ())}
        missing = [name for name in ours if name not in index]
        if not missing:
            return torch.tensor([index[name] for name in ours])
        if self.settings.classifier == "required" or (own and len(missing) < len(ours)):
            shown = ", ".join(missing[:5]) + (", …" if len(missing) > 5 else "")
            raise UserError(
                f"{len(missing)} of the {len(ours)} classes of the labels are not among the {len(index)} classes of "
                f"{self.backbone.name}: {shown}. Give the backbone's class list, or set cache.classifier=off and run "
                "stage=probe after the cache."
            )
        return None

    def prepare(self) -> None:
        """Make the store, or check that the one there is of this run."""
        _ = self.store

    def missing(self) -> list[int]:
        """Units without a commit record, without loading the backbone."""
        done = set(committed_units(self.path / "commits"))
        return [unit for unit in range(len(self.tars.units)) if unit not in done]

    def run(self, unit: int, progress: Progress) -> Commit:
        """Cache one unit and commit it.

        Raises:
            UserError: the tar is broken, or more samples than the failure budget were quarantined; the reason is kept
                in ``<store>/failures``.
        """
        started = time.time()
        store = self.store
        failure = record_path(self.path / "failures", unit)
        bar = progress.bar(self.tars.units[unit].name, self.tars.units[unit].samples, "images")
        try:
            rows, quarantined, samples = self._rows(unit, bar.advance)
            self._check_budget(unit, quarantined, samples)
        except UserError as error:
            write_json(failure, {"unit": unit, "name": self.tars.units[unit].name, "reason": str(error)})
            raise
        finally:
            bar.close()
        commit = store.write_unit(unit, rows, quarantined)
        failure.unlink(missing_ok=True)
        self._note_telemetry(unit, samples, time.time() - started)
        return commit

    # -- the way of an image

    def _rows(self, unit: int, advance: Callable[[int], None]) -> tuple[UnitRows, list[Quarantined], int]:
        quarantined: list[Quarantined] = []
        samples = 0
        kept: list[_Prepared] = []
        forward = Forward(self.backbone, self.settings.batch_size, self.class_indices)
        for image in self._prepared(unit):
            samples += 1
            advance(1)
            if image.pixels_VHWC is None:
                quarantined.append(Quarantined(key=image.key, reason=image.reason))
                continue
            forward.add(image.pixels_VHWC, image.label)
            kept.append(_Prepared(key=image.key, label=image.label, params_VP=image.params_VP))
        embedding_RVD, scores = forward.results(len(self.settings.view_names))
        good_R = np.asarray(in_range(embedding_RVD, self.settings.dtype).all(axis=1))
        for row in np.flatnonzero(~good_R):
            reason = f"representation not finite or beyond the range of {self.settings.dtype}"
            quarantined.append(Quarantined(key=kept[row].key, reason=reason))
        kept = [image for image, good in zip(kept, good_R, strict=True) if good]
        params = [image.params_VP for image in kept if image.params_VP is not None]
        shape = (len(kept), len(self.settings.view_names), len(VIEW_PARAMS))
        rows = UnitRows(
            embedding_RVD=embedding_RVD[good_R],
            view_params_RVP=np.stack(params) if params else np.empty(shape, np.float32),
            label_R=np.array([image.label for image in kept], dtype=np.int32),
            keys=[image.key for image in kept],
            scores={name: value[good_R] for name, value in scores.items()},
        )
        return rows, quarantined, samples

    def _prepared(self, unit: int) -> Iterator[_Prepared]:
        workers = self.settings.workers or os.cpu_count() or 1
        return ordered_map(self._prepare_image, read_tar(self.tars.paths[unit]), workers)

    def _prepare_image(self, sample: TarSample | Quarantined) -> _Prepared:
        if not isinstance(sample, TarSample):
            return _Prepared(key=sample.key, label=-1, reason=sample.reason)
        try:
            label = label_of(sample, self.tars.class_names, absent=self.settings.unlabelled)
            views = make_views(
                decode(sample.data),
                sample.key,
                views=self.settings.view_names,
                seed=self.settings.seed,
                preprocessing=self.backbone.preprocessing,
                augmentation=self.settings.augmentation,
            )
        except BadSample as error:
            return _Prepared(key=sample.key, label=-1, reason=str(error))
        return _Prepared(key=sample.key, label=label, pixels_VHWC=views.pixels, params_VP=views.params)

    # -- records

    def _check_budget(self, unit: int, quarantined: list[Quarantined], samples: int) -> None:
        allowed = math.ceil(self.settings.max_quarantined * samples)
        if len(quarantined) > allowed:
            first = "; ".join(f"{item.key}: {item.reason}" for item in quarantined[:3])
            raise UserError(
                f"{self.tars.paths[unit]}: {len(quarantined)} of {samples} samples cannot be used, more than the "
                f"{allowed} that max_quarantined={self.settings.max_quarantined:g} allows. First: {first}"
            )

    def _note_telemetry(self, unit: int, samples: int, seconds: float) -> None:
        path = record_path(self.path / "telemetry", unit)
        sweep_partials(path.parent)
        attempts = read_json(path)["attempts"] + 1 if path.exists() else 1
        facts = {"seconds": round(seconds, 3), "samples": samples, "host": socket.gethostname(), "attempts": attempts}
        write_json(path, facts)
