"""The exact solver: multinomial logistic regression by L-BFGS on rows in memory, one probe at a time.

Shapes: N rows, V views, D width, C classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pipeline.errors import UserError
from pipeline.interruption import stop_if_asked
from pipeline.probing.logistic import choose_l2, fit
from pipeline.probing.rows import labels_to_fit, what_helps
from pipeline.probing.saved import Probe, over_raw
from pipeline.probing.settings import ProbeSettings, fold_of, share_of, view_indices
from pipeline.progress import Progress
from pipeline.representation_store import RepresentationStore


def fit_probe(
    store: RepresentationStore,
    settings: ProbeSettings,
    *,
    leave_out: int | None,
    device: torch.device,
    progress: Progress,
) -> Probe:
    """Fit on every labelled row, or the shots, outside the fold ``leave_out`` (None: on all of them).

    Raises:
        UserError: an unknown view, or not a labelled row to fit or to choose the penalty on.
    """
    chosen = _choose_rows(store, settings, leave_out)
    features_NVD = _gather(store, chosen.rows, view_indices(store, settings), progress)
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
    return Probe(classifier=over_raw(final.weight_CD, final.bias_C, mean_D, scale), facts=facts)


@dataclass(frozen=True, kw_only=True)
class _Chosen:
    """Rows by unit, and their labels; the first ``fitted`` are fitted while the penalty is chosen on the rest."""

    rows: list[tuple[int, int]]  # (unit, row in the unit)
    label_N: NDArray[np.int64]
    fitted: int


def _choose_rows(store: RepresentationStore, settings: ProbeSettings, leave_out: int | None) -> _Chosen:
    keys, label_N = store.keys(), labels_to_fit(store, settings)
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
            f"(fold left out: {leave_out}). {what_helps(settings)}"
        )
    return _Chosen(rows=[places[i] for i in order], label_N=label_N[order].astype(np.int64), fitted=fitted)


def _gather(
    store: RepresentationStore, rows: Sequence[tuple[int, int]], views: list[int], progress: Progress
) -> Tensor:
    """The representations of ``rows``, float32 of shape (N, V, D), each unit read once."""
    features_NVD = np.empty((len(rows), len(views), store.layout.width), np.float32)
    unit_N, row_N = np.array(rows).T
    bar = progress.bar("read representations", len(rows), "rows")
    for unit in np.unique(unit_N):
        stop_if_asked()
        here = np.flatnonzero(unit_N == unit)
        for place, view in enumerate(views):
            features_NVD[here, place] = store.representation(int(unit), view=view)[row_N[here]]
        bar.advance(len(here))
    bar.close()
    return torch.from_numpy(features_NVD)
