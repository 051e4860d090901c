"""What runs inside a decoding process; apart, so that such a process loads neither torch nor zarr.

It is started with :func:`begin`, and then does :func:`work` for one sample after the other. Pixels go through a slot of
shared memory, the rest comes back as a message.
"""

from __future__ import annotations

import math
from multiprocessing.shared_memory import SharedMemory
from multiprocessing.synchronize import Lock

import numpy as np
from numpy.typing import NDArray

from pipeline.faults import Quarantined
from pipeline.images.prepared import Prepared, ViewPlan, prepare
from pipeline.images.room import ROOM
from pipeline.images.tars import TarSample
from pipeline.images.views import ViewsOfImage
from pipeline.processes import end_with_parent, leave_interrupts_to_parent

_PLAN: ViewPlan
_MEMORY: SharedMemory
_SLOT_BYTES: int
_NOTHING = np.empty((0, 0, 0, 0), np.uint8)


def slot_pixels(memory: SharedMemory, start: int, plan: ViewPlan) -> list[NDArray[np.uint8]]:
    """The arrays of the slot that begins at byte ``start``: (V, H, W, C) for each preprocessing of the plan."""
    arrays = []
    for shape in plan.shapes:
        arrays.append(np.ndarray(shape, np.uint8, memory.buf, start))
        start += math.prod(shape)
    return arrays


def begin(plan: ViewPlan, memory: str, slot_bytes: int, giants: Lock) -> None:
    """Get ready.

    Args:
        plan: of every sample.
        memory: name of the shared memory.
        slot_bytes: of one slot.
        giants: shared by all processes of the pool; one at a time decodes a giant image. If its holder is killed it
            stays locked, but then the pool is broken and a new one has a new lock.
    """
    global _PLAN, _MEMORY, _SLOT_BYTES
    ROOM.giants = giants
    leave_interrupts_to_parent()
    end_with_parent()
    _PLAN, _MEMORY, _SLOT_BYTES = plan, SharedMemory(memory), slot_bytes


def work(sample: TarSample | Quarantined, slot: int) -> Prepared:
    """Prepare a sample; its pixels are in the slot when this returns."""
    prepared = prepare(sample, _PLAN)
    views = []
    for pixels, made in zip(slot_pixels(_MEMORY, slot * _SLOT_BYTES, _PLAN), prepared.views, strict=False):
        pixels[...] = made.pixels
        views.append(ViewsOfImage(pixels=_NOTHING, params=made.params))
    return Prepared(key=prepared.key, label=prepared.label, views=views, reason=prepared.reason)
