"""A linear probe over cached representations, for backbones without a class head for these labels.

Task losses for training heads must not come from a classifier that was fitted on the very row: those would be small
everywhere. So the rows are split into folds by a hash of the sample key (all views of a row share its fold), and what
is said of a row comes from the probe that never saw its fold. Copies of one image under several keys are not found.

Shapes: N rows, V views, D width, C classes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import safetensors.torch
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from pipeline.backbones.logistic import Logistic, choose_l2, fit
from pipeline.config import config
from pipeline.errors import UserError
from pipeline.files import sha256_file, write_bytes
from pipeline.heads.base import LinearClassifier
from pipeline.places import Place
from pipeline.progress import Progress
from pipeline.representation_store import RepresentationStore
from pipeline.sealed import read_sealed, write_sealed

NAME = "probe"


@config
class ProbeSettings:
    """How the probes are fitted."""

    # Folds; each fold's rows are scored by the probe of all other folds.
    folds: Annotated[int, Field(ge=2, le=100)] = 5
    # L2 penalties that are tried, from strong to weak, until the held-out loss rises.
    l2: Annotated[tuple[Annotated[float, Field(gt=0)], ...], Field(min_length=1)] = (
        1.0,
        0.3,
        0.1,
        0.03,
        0.01,
        0.003,
        0.001,
    )
    # Share of a probe's training rows on which its penalty is chosen.
    held_out: Annotated[float, Field(gt=0, lt=1)] = 0.2
    # Views that the probes are fitted on; null = all. All views are scored.
    views: Annotated[tuple[str, ...], Field(min_length=1)] | None = None
    # Rows that a probe is fitted on at most, drawn by key; they are held in memory as float32. All rows are scored.
    max_rows: Annotated[int, Field(ge=2)] = 50_000
    # Bound on the L-BFGS iterations of a fit.
    max_iterations: Annotated[int, Field(ge=1)] = 200
    # Of the assignment to folds.
    seed: int = 0


@dataclass(frozen=True, kw_only=True)
class Probe:
    """A fitted probe, over raw representations, and the facts of its fit (plain values)."""

    classifier: LinearClassifier
    facts: Mapping[str, Any]


def share_of(key: str, what: str, seed: int) -> float:
    """A number in [0, 1) that depends on the arguments alone, uniform over keys."""
    mark = hashlib.blake2b(f"{seed}/{what}/{key}".encode(), digest_size=7).digest()
    return int.from_bytes(mark, "big") / 2**56


def fold_of(key: str, settings: ProbeSettings) -> int:
    """The fold of a sample."""
    return int(share_of(key, "fold", settings.seed) * settings.folds)


def fit_probe(
    store: RepresentationStore,
    settings: ProbeSettings,
    *,
    leave_out: int | None,
    device: torch.device,
    progress: Progress,
) -> Probe:
    """Fit on every labelled row outside the fold ``leave_out`` (None: on all).

    Raises:
        UserError: an unknown view, or not a labelled row to fit or to choose the penalty on.
    """
    chosen = _choose_rows(store, settings, leave_out)
    features_NVD = _gather(store, chosen.rows, _view_indices(store, settings), progress)
    views, width = features_NVD.shape[1:]
    label_N = torch.from_numpy(chosen.label_N).repeat_interleave(views).to(device)
    features_ND = features_NVD.reshape(-1, width)
    mean_D = features_ND.mean(dim=0)
    features_ND -= mean_D  # in place: this is the largest thing in memory
    scale = float(torch.linalg.vector_norm(features_ND)) / features_ND.numel() ** 0.5 or 1.0
    features_ND = features_ND.div_(scale).to(device)
    bar = progress.bar("choose l2", len(settings.l2), "penalties")
    choice = choose_l2(
        features_ND,
        label_N,
        fitted=chosen.fitted * views,
        num_classes=len(store.class_names),
        grid=settings.l2,
        max_iterations=settings.max_iterations,
        bar=bar,
    )
    bar.close()
    final = fit(features_ND, label_N, l2=choice.l2, start=choice.fit, max_iterations=settings.max_iterations)
    facts = {
        "rows": len(label_N) // views,
        "l2": choice.l2,
        "held_out_loss": {f"{l2:g}": loss for l2, loss in choice.losses.items()},
        "loss": final.loss(features_ND, label_N),
    }
    return Probe(classifier=_folded(final, mean_D, scale), facts=facts)


@dataclass(frozen=True, kw_only=True)
class _Chosen:
    """Rows by unit, and their labels; the first ``fitted`` are fitted while the penalty is chosen on the rest."""

    rows: list[tuple[int, int]]  # (unit, row in the unit)
    label_N: NDArray[np.int64]
    fitted: int


def _choose_rows(store: RepresentationStore, settings: ProbeSettings, leave_out: int | None) -> _Chosen:
    keys, label_N = store.keys(), store.load("label")
    places = [(unit, row) for unit, count in store.counts().items() for row in range(count)]
    ours = [i for i, key in enumerate(keys) if label_N[i] >= 0 and fold_of(key, settings) != leave_out]
    if len(ours) > settings.max_rows:
        ours = sorted(sorted(ours, key=lambda i: share_of(keys[i], "rows", settings.seed))[: settings.max_rows])
    held = [share_of(keys[i], "held out", settings.seed) < settings.held_out for i in ours]
    order = [i for i, out in zip(ours, held, strict=True) if not out] + [
        i for i, out in zip(ours, held, strict=True) if out
    ]
    fitted = len(held) - sum(held)
    if not 0 < fitted < len(order):
        raise UserError(
            f"probe: {len(order)} labelled rows in {store.path} are too few to fit a probe and choose its penalty "
            f"(fold left out: {leave_out}). Cache more images, or set fewer probe.folds."
        )
    return _Chosen(rows=[places[i] for i in order], label_N=label_N[order].astype(np.int64), fitted=fitted)


def _view_indices(store: RepresentationStore, settings: ProbeSettings) -> list[int]:
    have = store.layout.views
    unknown = [view for view in settings.views or () if view not in have]
    if unknown:
        raise UserError(f"probe.views: the store has no view '{unknown[0]}'. It has: {', '.join(have)}.")
    return [have.index(view) for view in settings.views or have]


def _gather(
    store: RepresentationStore, rows: Sequence[tuple[int, int]], views: list[int], progress: Progress
) -> Tensor:
    """The representations of ``rows``, float32 of shape (N, V, D), each unit read once."""
    features_NVD = np.empty((len(rows), len(views), store.layout.width), np.float32)
    unit_N, row_N = np.array(rows).T
    bar = progress.bar("read representations", len(rows), "rows")
    for unit in np.unique(unit_N):
        here = np.flatnonzero(unit_N == unit)
        for place, view in enumerate(views):
            features_NVD[here, place] = store.representation(int(unit), view=view)[row_N[here]]
        bar.advance(len(here))
    bar.close()
    return torch.from_numpy(features_NVD)


def _folded(fitted: Logistic, mean_D: Tensor, scale: float) -> LinearClassifier:
    """The same classifier over raw representations: centring and scaling go into weight and bias."""
    weight_CD = fitted.weight_CD.cpu().double() / scale
    bias_C = fitted.bias_C.cpu().double() - weight_CD @ mean_D.double()
    return LinearClassifier(weight_CD=weight_CD.float(), bias_C=bias_C.float())


def save_probe(folder: Place, name: str, probe: Probe, **more: Any) -> None:
    """Write ``<name>.safetensors``, then ``<name>.json`` with its hash and facts; the record makes it count."""
    path = folder / f"{name}.safetensors"
    write_bytes(path, safetensors.torch.save({"weight": probe.classifier.weight_CD, "bias": probe.classifier.bias_C}))
    write_sealed(folder / f"{name}.json", {**probe.facts, **more, "sha256": sha256_file(path)})


def load_probe(folder: Place, name: str = NAME) -> LinearClassifier:
    """The probe that the stage wrote: on all rows by default, or of a fold (``fold-0`` …).

    Raises:
        UserError: there is none, or its bytes are not those of its record.
    """
    path, record = folder / f"{name}.safetensors", folder / f"{name}.json"
    if not record.is_file() or not path.is_file():
        raise UserError(f"no {name} in {folder}. Make it with `submit stage=probe`.")
    if sha256_file(path) != read_sealed(record)["sha256"]:
        raise UserError(
            f"{path} is damaged: its SHA-256 is not that of {record.name}. Remove both, and `submit stage=probe`."
        )
    tensors = safetensors.torch.load(path.read_bytes())
    return LinearClassifier(weight_CD=tensors["weight"], bias_C=tensors["bias"])
