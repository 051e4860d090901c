"""Standardised batches for the streaming solver: from the store by its reader, or from rows in memory.

The order is a pure function of the seed and the step in both. Shapes: B rows of a batch, N rows, V views,
D width.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pipeline.heads.base import Needs
from pipeline.interruption import stop_if_asked
from pipeline.probing.rows import Rows
from pipeline.probing.settings import ProbeSettings, view_indices
from pipeline.progress import Progress
from pipeline.representation_store import RepresentationStore
from pipeline.representation_store.draws import Draws
from pipeline.representation_store.reader import BatchReader, Reading

_DRAWN = 3  # what a random stream is for; the sampler's are 0 to 2


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Rows of one view each, centred and of scale one, on the device; their folds are in memory."""

    features_BD: Tensor
    label_B: Tensor
    fold_B: NDArray[np.int8]


class Feed(Protocol):
    """Gives the batches of any range of steps."""

    def batches(self, start: int, stop: int) -> Generator[Batch, None, None]:
        """The batches of steps ``start:stop``."""


@dataclass(frozen=True, kw_only=True)
class Moments:
    """What features are standardised with; ``scale`` is the root mean square of the centred values."""

    mean_D: Tensor
    scale: float


def reader_of(
    store: RepresentationStore, rows: Rows, settings: ProbeSettings, *, device: torch.device, threads: int, views: int
) -> BatchReader:
    """Reads labelled rows in the sampler's order, so many views of each, taking turns; memory as for one view."""
    reading = Reading(
        batch_size=max(settings.batch_size // views, 1),
        seed=settings.seed,
        window=max(settings.window // views, 1),
        memory=int(settings.memory_gb * 1e9),
        threads=threads,
        device=device,
    )
    chosen = view_indices(store, settings)
    return BatchReader(store, Needs(views=views), reading, keep=rows.label_N >= 0, from_views=chosen)


def survey(
    store: RepresentationStore, rows: Rows, settings: ProbeSettings, *, threads: int, progress: Progress
) -> tuple[Moments, Tensor]:
    """One pass over all views of every labelled row.

    Returns:
        The moments, and the representations of ``rows.drawn_N`` as they are stored, in the store's order, float32 of
        shape (drawn rows, views, D); the views of a row are in any order.
    """
    drawn, width = np.flatnonzero(rows.drawn_N), store.layout.width
    views = len(view_indices(store, settings))
    reader = reader_of(store, rows, settings, device=torch.device("cpu"), threads=threads, views=views)
    drawn_NVD = torch.empty(len(drawn), views, width)
    count, sum_D, square = 0, torch.zeros(width, dtype=torch.float64), 0.0
    bar = progress.bar("mean and scale", reader.sampler.rows, "rows")
    with closing(bar):
        for batch in reader.once():
            stop_if_asked()
            features_BVD, row_B = batch.representation_BVD, batch.row_B.numpy()
            mine = np.flatnonzero(rows.drawn_N[row_B])
            drawn_NVD[np.searchsorted(drawn, row_B[mine])] = features_BVD[mine]
            count += len(row_B) * views
            sum_D += features_BVD.sum(dim=(0, 1), dtype=torch.float64)
            square += float(torch.linalg.vector_norm(features_BVD, dtype=torch.float64)) ** 2
            bar.advance(len(row_B))
    mean_D = sum_D / count
    variance = square / (count * width) - float(mean_D.square().mean())
    return Moments(mean_D=mean_D.float(), scale=max(variance, 0.0) ** 0.5 or 1.0), drawn_NVD


class Stored:
    """The labelled rows of a store."""

    def __init__(self, reader: BatchReader, rows: Rows, moments: Moments) -> None:
        self.reader, self.rows = reader, rows
        self.mean_D, self.scale = moments.mean_D.to(reader.reading.device), moments.scale

    def batches(self, start: int, stop: int) -> Generator[Batch, None, None]:
        """The batches of steps ``start:stop``, read ahead."""
        with closing(self.reader.batches(start, stop)) as batches:
            for batch in batches:
                row_B = batch.row_B.cpu().numpy()
                yield Batch(
                    features_BD=(batch.representation_BVD[:, 0] - self.mean_D) / self.scale,
                    label_B=torch.from_numpy(self.rows.label_N[row_B]).long().to(self.mean_D.device),
                    fold_B=self.rows.fold_N[row_B],
                )


class Held:
    """Some of the rows in memory: the epochs are permutations of them, one after the other."""

    def __init__(
        self, features_ND: Tensor, label_N: Tensor, *, rows: NDArray[np.int64], batch_size: int, seed: int
    ) -> None:
        self.features_ND, self.label_N, self.rows = features_ND, label_N, rows
        self.batch_size, self.seed = batch_size, seed

    def batches(self, start: int, stop: int) -> Generator[Batch, None, None]:
        """The batches of steps ``start:stop``; no fold is told apart."""
        kept: tuple[int, NDArray[np.int64]] | None = None
        for step in range(start, stop):
            place, end, parts = step * self.batch_size, (step + 1) * self.batch_size, []
            while place < end:
                epoch, low = divmod(place, len(self.rows))
                if kept is None or kept[0] != epoch:
                    order_N = Draws(seed=self.seed, purpose=_DRAWN, at=(epoch, 0)).permutations(1, len(self.rows))[0]
                    kept = epoch, self.rows[order_N]
                parts.append(kept[1][low : low + end - place])
                place += len(parts[-1])
            index_B = torch.from_numpy(np.concatenate(parts)).to(self.label_N.device)
            yield Batch(
                features_BD=self.features_ND[index_B],
                label_B=self.label_N[index_B],
                fold_B=np.full(self.batch_size, -1, np.int8),
            )
