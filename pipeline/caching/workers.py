"""Decoding workers: samples in, prepared images out, in order, with a bounded number of them under way.

Threads cost nothing to start and are enough on few cores, because decoding and resizing release the interpreter lock.
A GPU wants thousands of views a second, of which one interpreter cannot keep the books: then processes do it, started
with *spawn* (never forked: a fork of a process that has threads can deadlock), which write pixels into shared memory.
"""

from __future__ import annotations

import contextlib
import math
import multiprocessing
import os
import shutil
import weakref
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Generator, Iterable
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path

from pipeline.errors import UserError
from pipeline.faults import Quarantined
from pipeline.images.decoding_process import begin, slot_pixels, work
from pipeline.images.prepared import Prepared, ViewPlan, prepare
from pipeline.images.tars import TarSample
from pipeline.images.views import ViewsOfImage
from pipeline.interruption import stop_if_asked_soon

Sample = TarSample | Quarantined
AHEAD = 3  # samples under way for each worker: one in work, one done, one waiting
SHARED = Path("/dev/shm")  # where Linux keeps shared memory


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Workers(ABC):
    """Some workers that follow one plan; made once, used for every unit."""

    @abstractmethod
    def map(self, samples: Iterable[Sample]) -> Generator[Prepared, None, None]:
        """Each sample prepared, in order. The pixels of one are valid until the next is asked for.

        Raises:
            UserError: a worker died.
        """

    @abstractmethod
    def close(self) -> None:
        """End the workers."""


class Threads(Workers):
    """Workers in this process."""

    def __init__(self, plan: ViewPlan, count: int) -> None:
        self.plan = plan
        self.ahead = AHEAD * count
        self.pool = ThreadPoolExecutor(count, thread_name_prefix="decode")

    def map(self, samples: Iterable[Sample]) -> Generator[Prepared, None, None]:
        """Each sample prepared, in order."""
        waiting: deque[Future[Prepared]] = deque()
        try:
            for sample in samples:
                waiting.append(self.pool.submit(prepare, sample, self.plan))
                if len(waiting) > self.ahead:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()

    def close(self) -> None:
        """End the threads."""
        self.pool.shutdown(cancel_futures=True)


class Processes(Workers):
    """Workers in processes of their own; pixels come through slots of shared memory."""

    def __init__(self, plan: ViewPlan, count: int) -> None:
        """Take the shared memory; the processes start with the first unit.

        Raises:
            UserError: there is too little shared memory.
        """
        self.plan = plan
        self.count = count
        self.slot_bytes = sum(math.prod(shape) for shape in plan.shapes)
        self.slots = AHEAD * count
        free = shutil.disk_usage(SHARED).free if SHARED.is_dir() else math.inf
        if self.slots * self.slot_bytes > free:  # beyond it, writing would end this process
            raise UserError(
                f"cache.decode=processes: {self.slots * self.slot_bytes / 1e6:.0f} MB of shared memory are needed, "
                f"{free / 1e6:.0f} MB are free in {SHARED}. Give the container more (docker: --shm-size), or set "
                "cache.decode=threads or fewer cache.workers."
            )
        self.memory = SharedMemory(create=True, size=self.slots * self.slot_bytes)
        self._give_back = weakref.finalize(self, _give_back, self.memory)
        self.pool: ProcessPoolExecutor | None = None

    def map(self, samples: Iterable[Sample]) -> Generator[Prepared, None, None]:
        """Each sample prepared, in order.

        Raises:
            UserError: a process died, most likely ended by the system for want of memory.
            Interrupted: a process died, and this one is asked to stop.
        """
        free = list(range(self.slots))
        waiting: deque[tuple[int, Future[Prepared]]] = deque()
        pool = self._started()
        try:
            for sample in samples:
                slot = free.pop()
                waiting.append((slot, pool.submit(work, sample, slot)))
                if not free:
                    slot, future = waiting.popleft()
                    yield self._with_pixels(future.result(), slot)
                    free.append(slot)
            while waiting:
                slot, future = waiting.popleft()
                yield self._with_pixels(future.result(), slot)
        except BrokenProcessPool:
            self.pool = None
            stop_if_asked_soon()
            raise UserError(
                "a decoding process died; the system may have ended it for want of memory. The same command tries "
                "this unit again; if it repeats, set fewer cache.workers or cache.decode=threads."
            ) from None
        finally:
            # a slot must not be handed out again while a worker still writes to it
            for _, future in waiting:
                future.cancel()
            wait_all([future for _, future in waiting if not future.cancelled()])

    def _started(self) -> ProcessPoolExecutor:
        if self.pool is None:
            context = multiprocessing.get_context("spawn")
            self.pool = ProcessPoolExecutor(
                self.count,
                mp_context=context,
                initializer=begin,
                initargs=(self.plan, self.memory.name, self.slot_bytes, context.Lock()),
            )
        return self.pool

    def _with_pixels(self, prepared: Prepared, slot: int) -> Prepared:
        if prepared.reason:
            return prepared
        pixels = slot_pixels(self.memory, slot * self.slot_bytes, self.plan)
        views = [
            ViewsOfImage(pixels=part, params=view.params) for part, view in zip(pixels, prepared.views, strict=True)
        ]
        return Prepared(key=prepared.key, label=prepared.label, views=views)

    def close(self) -> None:
        """End the processes and give the shared memory back."""
        if self.pool is not None:
            self.pool.shutdown(cancel_futures=True)
        self._give_back()


def _give_back(memory: SharedMemory) -> None:
    memory.unlink()
    with contextlib.suppress(BufferError):  # somebody still looks at pixels; the memory goes with the last of them
        memory.close()


def wait_all(futures: list[Future[Prepared]]) -> None:
    """Wait until all are done, whatever comes of them."""
    for future in futures:
        future.exception()
