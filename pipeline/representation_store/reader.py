"""Batches of a store in the sampler's order, from memory or streamed: the same batches either way.

A store that fits ``memory`` is loaded once; a larger one is streamed, a window of the sampler's order being used while
threads read the next one into the other of two buffers. So memory is bounded by ``memory`` or by two windows.

Shape suffixes: B rows of a batch, V views of a row, D width.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from pipeline.heads.base import Needs, RepresentationBatch
from pipeline.representation_store.blocks import blocks_of
from pipeline.representation_store.grouping import grouping_of
from pipeline.representation_store.mining import Embed, HardNegatives
from pipeline.representation_store.sampler import Sampler, Span
from pipeline.representation_store.sources import Held, Resident, Source, Streamed, decode
from pipeline.representation_store.store import RepresentationStore
from pipeline.representation_store.triplets import Triplets

T = TypeVar("T")
AHEAD = 2  # batches that are made while one is used


@dataclass(frozen=True, kw_only=True)
class Reading:
    """How rows are ordered, and with what means they are read.

    Attributes:
        batch_size: rows of a global batch.
        seed: of the order.
        window: rows that are mixed with each other; one larger than the store is a full permutation.
        memory: bytes that rows may take up; a store that fits is loaded once, a larger one is streamed.
        threads: that read the store.
        device: where batches are wanted.
    """

    batch_size: int
    seed: int = 0
    window: int = 1 << 17
    memory: int = 2 << 30
    threads: int = 2
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))


class BatchReader:
    """Serves what a head needs, in the sampler's order."""

    def __init__(
        self,
        store: RepresentationStore,
        needs: Needs,
        reading: Reading,
        *,
        keep: NDArray[np.bool_] | None = None,
        from_views: Sequence[int] | None = None,
    ) -> None:
        """Lay the order down; rows are read when batches are asked for.

        Args:
            store: what is read.
            needs: of the head.
            reading: order and means.
            keep: (rows of the store,) which rows take part, if ``store`` is limited those of these; None = all.
            from_views: places of the cached views that take part; None = all.

        Raises:
            UserError: no row takes part, or the store has too few views, or not the classes for the sampling.
        """
        self.store, self.reading, self.mining, self.progress = store, reading, needs.mining, needs.progress
        if store.takes_part is not None:
            keep = store.takes_part if keep is None else keep & store.takes_part
        blocks = blocks_of(store.counts(), store.layout.chunk_rows, keep)
        self._sampler = partial(
            Sampler,
            blocks,
            cached_views=len(store.layout.views),
            views=needs.views,
            batch_size=reading.batch_size,
            window=reading.window,
            seed=reading.seed,
            from_views=from_views,
        )
        self.sampler = self._sampler(grouping=grouping_of(store, blocks, needs))
        self.arrays = [*store.layout.representation, *["task_loss"] * needs.task_loss, *["label"] * needs.labels]
        self._held: Resident | None = None

    @property
    def left_out(self) -> str:
        """Which rows are in no batch because of the sampling, in words; empty if there are none."""
        return self.sampler.grouping.left_out if self.sampler.grouping else ""

    @property
    def resident(self) -> bool:
        """Whether the rows that take part are held in memory rather than streamed."""
        cells = (self.store.arrays[name] for name in self.arrays)
        row_bytes = sum(cell.dtype.itemsize * int(np.prod(cell.shape[2:])) for cell in cells)
        return self.sampler.rows * row_bytes <= self.reading.memory

    def batches(
        self, start: int, stop: int, rows: slice | None = None, embed: Embed | None = None
    ) -> Generator[RepresentationBatch, None, None]:
        """The global batches of steps ``start:stop``, made ahead by a thread.

        Args:
            start, stop: steps; training ends before ``stop``, against which progress is measured.
            rows: the part of each batch that is wanted; None = all.
            embed: the head that is trained, for heads with ``mining="head"``: asked when a batch is asked for. Without
                it their negatives are the drawn ones.

        Raises:
            UserError: a row has no task loss though the head needs it; a chunk is damaged.
        """
        size = self.reading.batch_size
        low, high, _ = (rows or slice(None)).indices(size)
        parts = ((step * size + low, step * size + high, step / stop) for step in range(start, stop))
        return self._read(parts, self.sampler, embed)

    def once(self, rows: int | None = None) -> Generator[RepresentationBatch, None, None]:
        """Every row once (or the first ``rows`` of them), in the order of epoch 0; the last batch may be smaller.

        So it is whatever the sampling of :meth:`batches` is.
        """
        sampler = self.sampler if self.sampler.grouping is None else self._sampler()
        total, size = min(sampler.rows, rows or sampler.rows), self.reading.batch_size
        return self._read(((start, min(start + size, total), 1.0) for start in range(0, total, size)), sampler)

    def _read(
        self, parts: Iterator[tuple[int, int, float]], sampler: Sampler, embed: Embed | None = None
    ) -> Generator[RepresentationBatch, None, None]:
        """Rows are gathered by a thread; numbers are made of them here, where the device's threads are at hand.

        ``parts`` are of the order's places, from and to, and how far training is there.
        """
        with closing(self._open(sampler)) as source:
            gather = self._gathering(source, sampler, embed)
            gathered = ((gather(list(sampler.spans(start, stop))), progress) for start, stop, progress in parts)
            for found, progress in _ahead(gathered, AHEAD):
                yield self._batch(found(), progress)

    def _gathering(
        self, source: Source, sampler: Sampler, embed: Embed | None
    ) -> Callable[[Sequence[Span]], Callable[[], Held]]:
        """Gathers the rows of spans, and leaves to another thread what is to be computed of them."""
        mined = self.mining == "representation" or (self.mining == "head" and embed is not None)
        if isinstance(sampler.grouping, Triplets) and mined:
            return HardNegatives(source, sampler, sampler.grouping, self.reading.device, embed).gather

        def gather(spans: Sequence[Span]) -> Callable[[], Held]:
            parts = [source.take(span) for span in spans]
            found = parts[0] if len(parts) == 1 else {name: torch.cat([p[name] for p in parts]) for name in parts[0]}
            return lambda: found

        return gather

    def _open(self, sampler: Sampler) -> Source:
        if not self.resident:
            return Streamed(self.store, self.arrays, sampler, self.reading.threads, self.reading.device)
        if self._held is None:
            self._held = Resident(self.store, self.arrays, sampler, self.reading.threads, self.reading.device)
        return self._held.following(sampler)

    def _batch(self, gathered: Held, progress: float) -> RepresentationBatch:
        found = {name: value.to(self.reading.device, non_blocking=True) for name, value in gathered.items()}
        return RepresentationBatch(
            representation_BVD=decode(found["embedding"], found.get("scale")),
            row_B=found["row"],
            task_loss_BV=found.get("task_loss"),
            label_B=found["label"].long() if "label" in found else None,
            progress_B=torch.full(found["row"].shape, progress, device=found["row"].device) if self.progress else None,
        )


def _ahead(items: Iterator[T], depth: int) -> Iterator[T]:
    """The same items, ``depth`` of them made in another thread while one is used."""
    end = object()
    with ThreadPoolExecutor(1) as pool:
        made = deque(pool.submit(next, items, end) for _ in range(depth))
        while (item := made.popleft().result()) is not end:
            made.append(pool.submit(next, items, end))
            yield item  # type: ignore[misc]
