"""The order in which rows are seen: index arithmetic alone, a pure function of (seed, epoch, step).

A store is read in **blocks**, the rows of one inner chunk, of which one view can be read without the others. An epoch
is every row once. Its blocks are permuted, cut into **windows** of about ``window`` rows, and the rows inside a window
are permuted; batches are cut from the stream this gives, on and on over the epochs. So a batch mixes as many units as a
window has blocks, no more than a window need be in memory, and a window larger than the store is a full permutation.

Every block goes through its V cached views (those that take part) in an order of its own, one after the other: over
V epochs each (row, view) is seen once. The view is drawn for a block and not for a row, so that only bytes that are
used are read.

With a :class:`~pipeline.representation_store.balanced.ClassBalance` an epoch has as many places, in whole groups of
rows of one class, and each window gives as many of them as it has rows.

Nothing depends on how many processes read, where rows lie in memory, or where a run was interrupted. All randomness is
raw Philox output, whose stream numpy promises never to change, counted by (epoch, window).

Shape suffixes: K blocks, N places of a window in the order seen, B rows of a batch, V views drawn for a row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from pipeline.errors import UserError
from pipeline.representation_store.balanced import ClassBalance

Ints = NDArray[np.int64]
T = TypeVar("T")

_BLOCKS, _ROWS, _VIEWS, _CLASSES = range(4)  # what a random stream is for


@dataclass(frozen=True, kw_only=True)
class Blocks:
    """The blocks of a store, in its order; each holds at least one kept row.

    Attributes:
        unit_K: unit of each block.
        start_K, stop_K: its rows within the unit.
        first_K: place of its first row in the whole store.
        rows: places in the whole store of the rows that are kept, ascending.
        low_K, high_K: its part of ``rows``.
    """

    unit_K: Ints
    start_K: Ints
    stop_K: Ints
    first_K: Ints
    rows: Ints
    low_K: Ints
    high_K: Ints


def blocks_of(counts: Mapping[int, int], chunk_rows: int, keep: NDArray[np.bool_] | None = None) -> Blocks:
    """Cut a store into blocks.

    Args:
        counts: committed unit → rows, in the store's order.
        chunk_rows: rows of an inner chunk.
        keep: (rows of the store,) which rows take part; None = all.
    """
    unit = np.fromiter(counts, dtype=np.int64, count=len(counts))
    size = np.fromiter(counts.values(), dtype=np.int64, count=len(counts))
    chunks = -(-size // chunk_rows)
    unit_K = np.repeat(unit, chunks)
    start_K = (np.arange(chunks.sum()) - np.repeat(np.cumsum(chunks) - chunks, chunks)) * chunk_rows
    stop_K = np.minimum(start_K + chunk_rows, np.repeat(size, chunks))
    first_K = np.repeat(np.cumsum(size) - size, chunks) + start_K
    rows = np.arange(size.sum()) if keep is None else np.flatnonzero(keep)
    low_K = np.searchsorted(rows, first_K)
    high_K = np.searchsorted(rows, first_K + stop_K - start_K)
    some = high_K > low_K
    return Blocks(
        unit_K=unit_K[some],
        start_K=start_K[some],
        stop_K=stop_K[some],
        first_K=first_K[some],
        rows=rows,
        low_K=low_K[some],
        high_K=high_K[some],
    )


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
        order_N: the place that is seen as the first, the second, … row of the window; where classes are balanced, a
            place may come several times, or not at all.
        kept_N: place among the rows that take part, in the order seen.
        row_N, view_NV: row in the store, and views, in the order seen.
    """

    block_K: Ints
    view_KV: Ints
    offset_K: Ints
    order_N: Ints
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
        balance: ClassBalance | None = None,
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
            balance: class-balanced batches; None = each row once an epoch.

        Raises:
            UserError: no rows, fewer cached views than are wanted, or a batch that tears groups of a class apart.
        """
        self.from_views = np.arange(cached_views) if from_views is None else np.asarray(from_views, dtype=np.int64)
        if not len(blocks.rows):
            raise UserError("the representation store has no rows to train on. Run `submit stage=cache` first.")
        if views > len(self.from_views):
            raise UserError(f"the head wants {views} views of each row, but the store holds {len(self.from_views)}")
        self.blocks = blocks
        self.cached_views, self.views = cached_views, views
        self.batch_size, self.seed = batch_size, seed
        self.rows, self.balance = len(blocks.rows), balance
        self.group = 1 if balance is None else balance.per_class
        if batch_size % self.group:
            raise UserError(
                f"train_head.batch_size: {batch_size} is no multiple of {self.group}, the rows of a class that this "
                "head wants beside each other."
            )
        self.places = self.rows // self.group * self.group  # of an epoch
        if not self.places:
            raise UserError(f"{self.rows} rows to train on, but this head wants {self.group} of a class at least.")
        self.blocks_per_window = max(1, window // int((blocks.high_K - blocks.low_K).max()))
        self.windows_per_epoch = -(-len(blocks.unit_K) // self.blocks_per_window)
        if balance is None:
            self.cuts = np.append(np.arange(0, len(blocks.unit_K), self.blocks_per_window), len(blocks.unit_K))
        else:  # even windows: a last one of a few rows could lack classes
            self.cuts = np.arange(self.windows_per_epoch + 1) * len(blocks.unit_K) // self.windows_per_epoch
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
        return _recent(self._windows, index, self._make_window)

    def batch(self, step: int) -> tuple[Ints, Ints]:
        """Rows (B,) and views (B, V) of the global batch of a step."""
        spans = list(self.spans(step * self.batch_size, (step + 1) * self.batch_size))
        windows = [self.window(span.window) for span in spans]
        row_B = np.concatenate([w.row_N[s.start : s.stop] for w, s in zip(windows, spans, strict=True)])
        view_BV = np.concatenate([w.view_NV[s.start : s.stop] for w, s in zip(windows, spans, strict=True)])
        return row_B, view_BV

    def _epoch(self, number: int) -> _Epoch:
        return _recent(self._epochs, number, self._make_epoch)

    def _make_epoch(self, number: int) -> _Epoch:
        count = len(self.blocks.unit_K)
        order_K = permutations(1, count, seed=self.seed, purpose=_BLOCKS, at=(number, 0))[0]
        choice = len(self.from_views)
        cycle, turn = divmod(number, choice)
        turns = (turn * self.views + np.arange(self.views)) % choice
        view_KV = permutations(count, choice, seed=self.seed, purpose=_VIEWS, at=(cycle, 0))[:, turns]
        view_KV = self.from_views[view_KV]
        size_K = (self.blocks.high_K - self.blocks.low_K)[order_K]
        end_K = np.concatenate([[0], np.cumsum(size_K)])
        start = end_K[self.cuts] // self.group * self.group
        return _Epoch(order_K=order_K, view_KV=view_KV[order_K], start=start)

    def _make_window(self, index: int) -> Window:
        number, window = divmod(index, self.windows_per_epoch)
        epoch, blocks = self._epoch(number), self.blocks
        part = slice(self.cuts[window], self.cuts[window + 1])
        block_K, view_KV = epoch.order_K[part], epoch.view_KV[part]
        size_K = blocks.high_K[block_K] - blocks.low_K[block_K]
        offset_K = np.cumsum(size_K) - size_K
        total = int(size_K.sum())
        order_N = permutations(1, total, seed=self.seed, purpose=_ROWS, at=(number, window))[0]
        laid_N = np.arange(total) + np.repeat(blocks.low_K[block_K] - offset_K, size_K)
        if self.balance is not None:
            groups = int(epoch.start[window + 1] - epoch.start[window]) // self.group
            order_N = self.balance.order(laid_N, order_N, groups, self._permute(number, window))
        kept_N = laid_N[order_N]
        return Window(
            block_K=block_K,
            view_KV=view_KV,
            offset_K=offset_K,
            order_N=order_N,
            kept_N=kept_N,
            row_N=blocks.rows[kept_N],
            view_NV=np.repeat(view_KV, size_K, axis=0)[order_N],
        )

    def _permute(self, number: int, window: int) -> Callable[[int, int], Ints]:
        return lambda count, length: permutations(count, length, seed=self.seed, purpose=_CLASSES, at=(number, window))


def permutations(count: int, length: int, *, seed: int, purpose: int, at: tuple[int, int]) -> Ints:
    """``count`` random permutations of ``range(length)``, (count, length), a pure function of the arguments.

    The low bits of random 64-bit words are replaced by the index, and the words sorted: no ties, so nothing is left
    to the sorting algorithm.
    """
    generator = np.random.Philox(key=np.array([seed, purpose], dtype=np.uint64), counter=[0, 0, *at])
    bits = np.uint64(length.bit_length())
    words: NDArray[Any] = generator.random_raw(count * length).reshape(count, length)
    words = (words >> bits << bits) | np.arange(length, dtype=np.uint64)
    words.sort(axis=1)
    return (words & ((np.uint64(1) << bits) - np.uint64(1))).astype(np.int64)


def _recent(kept: dict[int, T], index: int, make: Callable[[int], T]) -> T:
    """``make(index)``, remembered for the last few: a batch lies in one window or two."""
    if index not in kept:
        if len(kept) == 3:
            del kept[next(iter(kept))]
        kept[index] = make(index)
    return kept[index]
