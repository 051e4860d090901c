"""The order in which rows are seen: index arithmetic alone, a pure function of (seed, epoch, step).

A store is read in **blocks**, the rows of one inner chunk, of which one view can be read without the others. An epoch
is every row once. Its blocks are permuted, cut into **windows** of about ``window`` rows, and the rows inside a window
are permuted; batches are cut from the stream this gives, on and on over the epochs. So a batch mixes as many units as a
window has blocks, no more than a window need be in memory, and a window larger than the store is a full permutation.

Every block goes through its V cached views (those that take part) in an order of its own, one after the other: over
V epochs each (row, view) is seen once. The view is drawn for a block and not for a row, so that only bytes that are
used are read.

With a :class:`~pipeline.representation_store.grouping.Grouping` an epoch is made of groups of neighbouring rows, and
each window gives as many of them as its blocks bring; no group lies in two windows.

Nothing depends on how many processes read, where rows lie in memory, or where a run was interrupted. All randomness is
raw Philox output, whose stream numpy promises never to change, counted by (epoch, window).

Shape suffixes: K blocks, N places of a window in the order seen, B rows of a batch, V views drawn for a row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import numpy as np

from pipeline.errors import UserError
from pipeline.representation_store.blocks import Blocks, Ints
from pipeline.representation_store.draws import Draws
from pipeline.representation_store.grouping import Grouping

T = TypeVar("T")

_BLOCKS, _ROWS, _VIEWS, _GROUPS = range(4)  # what a random stream is for


@dataclass(frozen=True, kw_only=True)
class Span:
    """Places ``start:stop`` of one window; ``window`` counts on over the epochs."""

    window: int
    start: int
    stop: int


@dataclass(frozen=True, kw_only=True)
class Window:
    """What is in memory at once, and the order in which it is seen.

    Attributes:
        block_K: its blocks, in the order in which they are laid down one after the other.
        view_KV: the views drawn for each block.
        offset_K: place at which each block is laid down.
        order_N: the place that is seen as the first, the second, … row of the window; with a grouping, a place may
            come several times, or not at all, and behind those that are seen may stand a pool to choose from.
        seen: how many of ``order_N`` are seen.
        kept_N: place among the rows that take part, in the order seen.
        row_N, view_NV: row in the store, and views, in the order seen.
    """

    block_K: Ints
    view_KV: Ints
    offset_K: Ints
    order_N: Ints
    seen: int
    kept_N: Ints
    row_N: Ints
    view_NV: Ints


@dataclass(frozen=True, kw_only=True)
class _Epoch:
    order_K: Ints  # blocks in the order read
    view_KV: Ints  # views of each block, in the order read
    start: Ints  # (windows + 1,) first place of each window in the epoch


class Sampler:
    """The endless stream of rows of a store, cut into windows and batches."""

    def __init__(
        self,
        blocks: Blocks,
        *,
        cached_views: int,
        views: int,
        batch_size: int,
        window: int,
        seed: int,
        from_views: Sequence[int] | None = None,
        grouping: Grouping | None = None,
    ) -> None:
        """Make the order.

        Args:
            blocks: of the store.
            cached_views: how many views of a row the store holds.
            views: how many of them a batch holds for each row.
            batch_size: rows of a global batch.
            window: rows that are mixed with each other; at least one block is.
            seed: of the order.
            from_views: the cached views that take part; None = all.
            grouping: of the rows into neighbours; None = each row once an epoch.

        Raises:
            UserError: no rows, fewer cached views than are wanted, or a batch that tears groups apart.
        """
        self.from_views = np.arange(cached_views) if from_views is None else np.asarray(from_views, dtype=np.int64)
        if not len(blocks.rows):
            raise UserError("the representation store has no rows to train on. Run `submit stage=cache` first.")
        if views > len(self.from_views):
            raise UserError(
                f"the head wants {views} different views of each row, but the store holds {len(self.from_views)}. "
                "Cache more of them: a larger cache.random_views makes another store."
            )
        self.blocks = blocks
        self.cached_views, self.views = cached_views, views
        self.batch_size, self.seed = batch_size, seed
        self.rows, self.grouping = len(blocks.rows), grouping
        self.group = 1 if grouping is None else grouping.group
        if batch_size % self.group:
            fits = [
                f"{count * self.group}" for count in (batch_size // self.group, batch_size // self.group + 1) if count
            ]
            raise UserError(
                f"train_head.batch_size: {batch_size} is no multiple of {self.group}, the rows that this head wants "
                f"beside each other. Take {' or '.join(fits)}."
            )
        self.places_K = blocks.size_K if grouping is None else grouping.places_K(blocks)  # of an epoch
        self.places = int(self.places_K.sum()) // self.group * self.group
        if not self.places:
            raise UserError(f"{self.rows} rows to train on, but this head wants {self.group} of a class at least.")
        self.blocks_per_window = max(1, window // int(blocks.size_K.max()))
        self.windows_per_epoch = -(-len(blocks.unit_K) // self.blocks_per_window)
        if grouping is None:
            self.cuts = np.append(np.arange(0, len(blocks.unit_K), self.blocks_per_window), len(blocks.unit_K))
        else:  # even windows: a last one of a few rows could lack classes
            self.cuts = np.arange(self.windows_per_epoch + 1) * len(blocks.unit_K) // self.windows_per_epoch
        self._draws = partial(Draws, seed=seed)
        self._epochs: dict[int, _Epoch] = {}
        self._windows: dict[int, Window] = {}

    def spans(self, start: int, stop: int) -> Iterator[Span]:
        """The parts of windows that are places ``start:stop`` of the stream."""
        while start < stop:
            number, place = divmod(start, self.places)
            bounds = self._epoch(number).start
            window = int(np.searchsorted(bounds, place, side="right")) - 1
            count = min(stop - start, int(bounds[window + 1]) - place)
            low = place - int(bounds[window])
            yield Span(window=number * self.windows_per_epoch + window, start=low, stop=low + count)
            start += count

    def window(self, index: int) -> Window:
        """Window ``index`` of the stream."""
        return recent(self._windows, index, self._make_window)

    def batch(self, step: int) -> tuple[Ints, Ints]:
        """Rows (B,) and views (B, V) of the global batch of a step."""
        spans = list(self.spans(step * self.batch_size, (step + 1) * self.batch_size))
        windows = [self.window(span.window) for span in spans]
        row_B = np.concatenate([w.row_N[s.start : s.stop] for w, s in zip(windows, spans, strict=True)])
        view_BV = np.concatenate([w.view_NV[s.start : s.stop] for w, s in zip(windows, spans, strict=True)])
        return row_B, view_BV

    def _epoch(self, number: int) -> _Epoch:
        return recent(self._epochs, number, self._make_epoch)

    def _make_epoch(self, number: int) -> _Epoch:
        count = len(self.blocks.unit_K)
        order_K = self._draws(purpose=_BLOCKS, at=(number, 0)).permutations(1, count)[0]
        choice = len(self.from_views)
        cycle, turn = divmod(number, choice)
        turns = (turn * self.views + np.arange(self.views)) % choice
        view_KV = self._draws(purpose=_VIEWS, at=(cycle, 0)).permutations(count, choice)[:, turns]
        view_KV = self.from_views[view_KV]
        end_K = np.concatenate([[0], np.cumsum(self.places_K[order_K])])
        start = end_K[self.cuts] // self.group * self.group
        return _Epoch(order_K=order_K, view_KV=view_KV[order_K], start=start)

    def _make_window(self, index: int) -> Window:
        number, window = divmod(index, self.windows_per_epoch)
        epoch, blocks = self._epoch(number), self.blocks
        part = slice(self.cuts[window], self.cuts[window + 1])
        block_K, view_KV = epoch.order_K[part], epoch.view_KV[part]
        size_K = blocks.size_K[block_K]
        offset_K = np.cumsum(size_K) - size_K
        total = int(size_K.sum())
        order_N = self._draws(purpose=_ROWS, at=(number, window)).permutations(1, total)[0]
        laid_N = np.arange(total) + np.repeat(blocks.low_K[block_K] - offset_K, size_K)
        seen = int(epoch.start[window + 1] - epoch.start[window])
        if self.grouping is not None:
            draws = self._draws(purpose=_GROUPS, at=(number, window))
            order_N = self.grouping.order(laid_N, order_N, seen // self.group, draws)
        kept_N = laid_N[order_N]
        return Window(
            block_K=block_K,
            view_KV=view_KV,
            offset_K=offset_K,
            order_N=order_N,
            seen=seen,
            kept_N=kept_N,
            row_N=blocks.rows[kept_N],
            view_NV=np.repeat(view_KV, size_K, axis=0)[order_N],
        )


def recent(kept: dict[int, T], index: int, make: Callable[[int], T]) -> T:
    """``make(index)``, remembered for the last few: a batch lies in one window or two."""
    if index not in kept:
        if len(kept) == 3:
            del kept[next(iter(kept))]
        kept[index] = make(index)
    return kept[index]
