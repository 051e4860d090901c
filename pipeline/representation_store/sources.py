"""Where the rows of a window come from: a store held in memory, or two buffers that threads fill in turn."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pipeline.errors import UserError
from pipeline.representation_store.sampler import Sampler, Span, Window
from pipeline.representation_store.store import RepresentationStore

Held = Mapping[str, Tensor]


class Source(Protocol):
    """Gives the rows of the sampler's stream, which is followed forward only."""

    def take(self, span: Span) -> Held:
        """Array → rows of ``span`` in the order seen: (B, V, …), or (B,) for the label; in the store's dtype."""

    def close(self) -> None:
        """Nothing more is taken."""


class Resident:
    """The store in memory, or on the device where half of its free memory is enough."""

    def __init__(
        self, store: RepresentationStore, arrays: Sequence[str], sampler: Sampler, threads: int, device: torch.device
    ) -> None:
        """Load the rows that take part.

        Raises:
            UserError: one of them has no task loss.
        """
        self.store, self.sampler = store, sampler
        rows = len(sampler.blocks.rows)
        self.held = {name: _empty(store, name, (rows, *store.arrays[name].shape[2:])) for name in arrays}
        first_U = np.flatnonzero(np.diff(sampler.blocks.unit_K, prepend=-1))  # blocks of a unit are neighbours
        stop_U = np.append(first_U[1:], len(sampler.blocks.unit_K))
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(self._load, first_U.tolist(), stop_U.tolist()))
        if device.type == "cuda":
            needed = sum(held.nbytes for held in self.held.values())
            if needed <= torch.cuda.mem_get_info(device)[0] // 2:
                self.held = {name: held.to(device) for name, held in self.held.items()}

    def following(self, sampler: Sampler) -> Resident:
        """The same memory, of which rows are taken in another order of the same blocks."""
        other = copy.copy(self)
        other.sampler = sampler
        return other

    def _load(self, first: int, stop: int) -> None:
        """The rows of blocks ``first:stop``, which are those of one unit."""
        blocks = self.sampler.blocks
        unit, start, part = int(blocks.unit_K[first]), int(blocks.start_K[first]), slice(first, stop)
        low, high = int(blocks.low_K[part][0]), int(blocks.high_K[part][-1])
        kept = blocks.rows[low:high] - blocks.first_K[first]
        for name, held in self.held.items():
            value = self.store.read(name, unit, start=start, stop=int(blocks.stop_K[part][-1]))
            value = value if len(value) == len(kept) else value[kept]
            if name == "task_loss":
                refuse_nan(self.store, unit, value)
            held.numpy()[low:high] = value

    def take(self, span: Span) -> Held:
        """Array → rows of ``span``, on the device of the memory that holds the store."""
        window = self.sampler.window(span.window)
        kept_B, view_BV = window.kept_N[span.start : span.stop], window.view_NV[span.start : span.stop]
        place_BV = kept_B[:, None] * self.sampler.cached_views + view_BV
        return {
            name: _select(held, kept_B) if held.ndim == 1 else _select(held.flatten(0, 1), place_BV)
            for name, held in self.held.items()
        }

    def close(self) -> None:
        """The store stays in memory: another pass may follow."""


@dataclass(frozen=True, kw_only=True)
class _Filling:
    buffers: dict[str, Tensor]
    tasks: list[Future[None]]


class Streamed:
    """One window is used while the next one is read; memory is two windows, whatever the store's size."""

    def __init__(self, store: RepresentationStore, arrays: Sequence[str], sampler: Sampler, threads: int) -> None:
        """Make the two buffers."""
        self.store, self.sampler = store, sampler
        self.pool = ThreadPoolExecutor(threads)
        size_K = sampler.blocks.high_K - sampler.blocks.low_K
        room = min(sampler.blocks_per_window * int(size_K.max()), sampler.rows)
        shapes = {name: (room, *store.arrays[name].shape[2:]) for name in arrays}
        shapes = {
            name: shape if len(shape) == 1 else (room, sampler.views, *shape[2:]) for name, shape in shapes.items()
        }
        self.free = [{name: _empty(store, name, shape) for name, shape in shapes.items()} for _ in range(2)]
        self.filling: dict[int, _Filling] = {}

    def take(self, span: Span) -> Held:
        """Array → rows of ``span``. The window before the span's is given up.

        Raises:
            UserError: a chunk is damaged, or a row has no task loss.
        """
        for past in [index for index in self.filling if index < span.window]:
            self.free.append(self.filling.pop(past).buffers)
        for index in (span.window, span.window + 1):
            if index not in self.filling:
                self.filling[index] = self._fill(self.sampler.window(index), self.free.pop())
        ready = self.filling[span.window]
        while ready.tasks:
            ready.tasks.pop().result()
        order_B = self.sampler.window(span.window).order_N[span.start : span.stop]
        return {name: _select(buffer, order_B) for name, buffer in ready.buffers.items()}

    def _fill(self, window: Window, buffers: dict[str, Tensor]) -> _Filling:
        tasks = [self.pool.submit(self._read, window, k, buffers) for k in range(len(window.block_K))]
        return _Filling(buffers=buffers, tasks=tasks)

    def _read(self, window: Window, k: int, buffers: dict[str, Tensor]) -> None:
        blocks, block = self.sampler.blocks, window.block_K[k]
        unit, start, stop = int(blocks.unit_K[block]), int(blocks.start_K[block]), int(blocks.stop_K[block])
        kept = blocks.rows[blocks.low_K[block] : blocks.high_K[block]] - blocks.first_K[block]
        part = slice(int(window.offset_K[k]), int(window.offset_K[k]) + len(kept))
        for name, buffer in buffers.items():
            for place, view in enumerate(window.view_KV[k].tolist() if buffer.ndim > 1 else [None]):
                value = self.store.read(name, unit, view=view, start=start, stop=stop)
                value = value if len(kept) == len(value) else value[kept]
                if name == "task_loss":
                    refuse_nan(self.store, unit, value)
                buffer.numpy()[part if view is None else (part, place)] = value

    def close(self) -> None:
        """Stop reading ahead."""
        self.pool.shutdown(cancel_futures=True)


def refuse_nan(store: RepresentationStore, unit: int, task_loss: NDArray[Any]) -> None:
    """Refuse rows without a task loss.

    Raises:
        UserError: says which unit, and how to get task losses.
    """
    missing = int(np.isnan(task_loss).any(axis=tuple(range(1, task_loss.ndim))).sum())
    if missing:
        raise UserError(
            f"{store.path}: {missing} of {len(task_loss)} rows read from unit {unit} "
            f"({store.layout.units[unit].name}) have no task loss, and this head learns from it. "
            "If the backbone has no class head for these labels, run `submit stage=probe` and set "
            "train_head.task_loss=probe; rows without a label cannot have one."
        )


def _empty(store: RepresentationStore, array: str, shape: tuple[int, ...]) -> Tensor:
    return torch.from_numpy(np.empty(shape, dtype=store.arrays[array].dtype))


def _select(held: Tensor, place: NDArray[np.int64]) -> Tensor:
    """``held[place]`` for places of any shape."""
    index = torch.from_numpy(place.reshape(-1)).to(held.device)
    return held.index_select(0, index).unflatten(0, place.shape)
