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
from pipeline.representation_store.sampler import Sampler, Span, Window, recent
from pipeline.representation_store.store import RepresentationStore

Held = Mapping[str, Tensor]


class Source(Protocol):
    """Gives the rows of the sampler's stream, which is followed forward only."""

    def take(self, span: Span) -> Held:
        """Array → rows of ``span`` in the order seen: (B, V, …), or (B,) for the label; in the store's dtype.

        ``row``: (B,) int64, place of each row in the store.
        """

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
        self.device = torch.device("cpu")
        if device.type == "cuda":
            needed = sum(held.nbytes for held in self.held.values())
            if needed <= torch.cuda.mem_get_info(device)[0] // 2:
                self.device = device
                self.held = {name: held.to(device) for name, held in self.held.items()}
        self.pinned = device != self.device
        self._places: dict[int, _Places] = {}

    def following(self, sampler: Sampler) -> Resident:
        """The same memory, of which rows are taken in another order of the same blocks."""
        other = copy.copy(self)
        other.sampler, other._places = sampler, {}
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
        places, part = recent(self._places, span.window, self._find), slice(span.start, span.stop)
        found = {
            name: _select(held, places.row_N[part], pinned=self.pinned)
            if held.ndim == 1
            else _select(held.flatten(0, 1), places.view_NV[part], pinned=self.pinned)
            for name, held in self.held.items()
        }
        return {**found, "row": places.store_row_N[part]}

    def _find(self, index: int) -> _Places:
        """Where the rows of a window lie, said once on the device: a copy for each batch would take longer."""
        window = self.sampler.window(index)
        view_NV = window.kept_N[:, None] * self.sampler.cached_views + window.view_NV
        values = {"row_N": window.kept_N, "view_NV": view_NV, "store_row_N": window.row_N}
        return _Places(**{name: torch.from_numpy(value).to(self.device) for name, value in values.items()})

    def close(self) -> None:
        """The store stays in memory: another pass may follow."""


@dataclass(frozen=True, kw_only=True)
class _Places:
    row_N: Tensor  # places among the rows that are held
    view_NV: Tensor  # among their views
    store_row_N: Tensor  # in the store


@dataclass(frozen=True, kw_only=True)
class _Filling:
    buffers: dict[str, Tensor]
    tasks: list[Future[None]]


class Streamed:
    """One window is used while the next one is read; memory is two windows, whatever the store's size."""

    def __init__(
        self, store: RepresentationStore, arrays: Sequence[str], sampler: Sampler, threads: int, device: torch.device
    ) -> None:
        """Make the two buffers."""
        self.store, self.sampler, self.pinned = store, sampler, device.type == "cuda"
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
        window, part = self.sampler.window(span.window), slice(span.start, span.stop)
        order_B = torch.from_numpy(window.order_N[part])
        found = {name: _select(buffer, order_B, pinned=self.pinned) for name, buffer in ready.buffers.items()}
        return {**found, "row": torch.from_numpy(window.row_N[part])}

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


def decode(embedding: Tensor, scale: Tensor | None) -> Tensor:
    """Like :func:`pipeline.representation_store.encoding.decode`, bit for bit, on the device where the rows are."""
    value = embedding.float()
    return value if scale is None else value * scale[..., None]


def _empty(store: RepresentationStore, array: str, shape: tuple[int, ...]) -> Tensor:
    return torch.from_numpy(np.empty(shape, dtype=store.arrays[array].dtype))


def _select(held: Tensor, place: Tensor, *, pinned: bool) -> Tensor:
    """``held[place]`` for places of any shape; ``pinned`` on the way to a GPU, which then need not be waited for."""
    flat = place.reshape(-1)
    if held.device.type != "cpu":
        return held.index_select(0, flat).unflatten(0, place.shape)
    # Not torch's: it would start a second set of threads beside those of the process's main thread, which then all
    # wait for each other. Checking the places makes numpy copy once more; they are the sampler's.
    found = torch.empty((len(flat), *held.shape[1:]), dtype=held.dtype, pin_memory=pinned)
    np.take(held.numpy(), flat.numpy(), axis=0, out=found.numpy(), mode="clip")
    return found.unflatten(0, place.shape)
