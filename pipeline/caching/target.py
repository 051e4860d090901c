"""One backbone's store, as a cache job fills it: what is missing there, how it is opened, and how a unit is written.

Shapes: R rows, V views, D width, P view parameters.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pipeline.backbones import pinned
from pipeline.backbones.base import Backbone
from pipeline.caching.budget import Budget
from pipeline.caching.forward import Said
from pipeline.caching.settings import CacheSettings
from pipeline.class_lists import Mismatch, match_classes
from pipeline.config import to_plain
from pipeline.errors import UserError
from pipeline.faults import Quarantined
from pipeline.files import read_json, sweep_partials, write_json
from pipeline.images.packed import PackedTars
from pipeline.images.views import params_of
from pipeline.places import Place
from pipeline.representation_store import Commit, RepresentationStore, StoreLayout, UnitRows, fit_rows
from pipeline.representation_store.encoding import in_range
from pipeline.representation_store.records import committed_units, record_path
from pipeline.representation_store.tally import tally_now_and_then
from pipeline.run_record import recall

Array = NDArray[Any]


@dataclass(frozen=True, kw_only=True)
class Row:
    """One image that was decoded: its key, label and (V, P) parameters of its views, for one group of backbones."""

    key: str
    label: int
    params_VP: Array


class Target:
    """Where the representations of one backbone go."""

    def __init__(self, path: Place, values: Mapping[str, Any], tars: PackedTars, settings: CacheSettings) -> None:
        self.path = path
        self.tars = tars
        self.settings = settings
        self._values = values
        known = [unit.samples for unit in tars.units if unit.samples is not None]
        self.budget = Budget(
            path / "commits", settings.max_quarantined, sum(known) if len(known) == len(tars.units) else None
        )

    # -- before anything is loaded

    def missing(self) -> list[int]:
        """Units without a commit record."""
        done = set(committed_units(self.path / "commits"))
        return [unit for unit in range(len(self.tars.units)) if unit not in done]

    def lacks(self, unit: int) -> bool:
        """Whether a unit has no commit record."""
        return not record_path(self.path / "commits", unit).exists()

    @property
    def began(self) -> Mapping[str, Any] | None:
        """What the record of a store that was begun says; None = there is none."""
        record = recall(self.path)
        return None if record is None else record["meaning"]

    def layout(self, width: int) -> StoreLayout:
        """Of a store for representations of ``width``."""
        rows, chunk_rows = fit_rows(self.tars.max_samples, width, self.settings.dtype)
        return StoreLayout(
            units=self.tars.units,
            rows=rows,
            views=self.settings.view_names,
            width=width,
            view_params=params_of(self.settings.view_names),
            key_bytes=self.tars.longest_key,
            dtype=self.settings.dtype,
            compressor=self.settings.compressor,
            compression_level=self.settings.compression_level,
            chunk_rows=chunk_rows,
        )

    @property
    def backbone_values(self) -> dict[str, Any]:
        """Values for :func:`pipeline.backbones.make_backbones`.

        What ``auto`` meant on the machine that began the store stays: others that go on with it compute the same.
        """
        began = self.began
        return dict(self._values) if began is None else pinned(self._values, began["backbone"])

    @property
    def batch_size(self) -> int | None:
        """Views a batch, as the config or the store that was begun says; None = to be found."""
        if self.settings.batch_size != "auto":
            return self.settings.batch_size
        began = self.began
        return None if began is None else int(began["batch_size"])

    # -- with the backbone

    def open(self, backbone: Backbone, batch_size: int) -> None:
        """Make the store, or go on with the one that lies there.

        Raises:
            UserError: a store of another run lies there, or the labels do not fit a required classifier.
        """
        self.class_indices = self._match(backbone)
        run = {
            "backbone": to_plain(backbone.describe()),
            "class_names": list(self.tars.class_names),
            "classifier": self.class_indices is not None,
            "seed": self.settings.seed,
            "augmentation": to_plain(self.settings.augmentation) if self.settings.random_views else None,
            "batch_size": batch_size,
        }
        self.store = RepresentationStore.create(self.path, self.layout(backbone.width), run)

    def _match(self, backbone: Backbone) -> Tensor | None:
        """Label → class of the backbone's own head, or None when its scores are not cached.

        Raises:
            UserError: ``classifier=required`` and a label has no class there; or only some have one.
        """
        theirs, ours = backbone.class_names or (), self.tars.class_names
        if self.settings.classifier == "off" or not ours:
            return None
        matched = match_classes(ours, theirs)
        if not isinstance(matched, Mismatch):
            return torch.tensor(matched)
        if self.settings.classifier == "required" or not matched.disjoint:
            raise UserError(
                f"{backbone.name}: {matched} Give the backbone's class list, or set cache.classifier=off and run "
                "stage=probe after the cache."
            )
        return None

    def write(self, unit: int, rows: Sequence[Row], said: Said, quarantined: Sequence[Quarantined]) -> Commit:
        """Commit a unit. A row whose representation cannot be stored is quarantined, for this backbone alone.

        Raises:
            UserError: more samples are bad than the failure budget allows, or the store has no room for them; it is
                not committed.
        """
        good_R = np.asarray(in_range(said.embedding_RVD, self.settings.dtype).all(axis=1))
        reason = f"representation not finite or beyond the range of {self.settings.dtype}"
        unusable = [Quarantined(key=rows[row].key, reason=reason) for row in np.flatnonzero(~good_R).tolist()]
        bad = [*quarantined, *unusable]
        kept = [row for row, good in zip(rows, good_R, strict=True) if good]
        names = self.settings.view_names
        shape = (0, len(names), len(params_of(names)))
        unit_rows = UnitRows(
            embedding_RVD=said.embedding_RVD if not unusable else said.embedding_RVD[good_R],
            view_params_RVP=np.stack([row.params_VP for row in kept]) if kept else np.empty(shape, np.float32),
            label_R=np.array([row.label for row in kept], dtype=np.int32),
            keys=[row.key for row in kept],
            scores={name: value[good_R] for name, value in said.scores.items()},
        )
        try:
            self.budget.check(unit, str(self.tars.paths[unit]), bad, len(rows) + len(quarantined))
            commit = self.store.write_unit(unit, unit_rows, bad)
        except UserError as error:
            self.note_failure(unit, error)
            raise
        record_path(self.path / "failures", unit).unlink(missing_ok=True)
        tally_now_and_then(self.path, unit)
        return commit

    # -- records beside the commits

    def note_failure(self, unit: int, error: UserError) -> None:
        """Say in ``failures/`` why a unit is not done; it goes when the unit is."""
        failure = {"unit": unit, "name": self.tars.units[unit].name, "reason": str(error)}
        write_json(record_path(self.path / "failures", unit), failure)

    def note_telemetry(self, unit: int, facts: Mapping[str, Any]) -> None:
        """Say in ``telemetry/`` how a unit was done: what depends on the machine and the day."""
        path = record_path(self.path / "telemetry", unit)
        sweep_partials(path.parent)
        try:
            attempts = int(read_json(path)["attempts"]) + 1
        except (FileNotFoundError, ValueError, LookupError, TypeError):  # telemetry has no checksum, and needs none
            attempts = 1
        write_json(path, {**facts, "host": socket.gethostname(), "attempts": attempts})
