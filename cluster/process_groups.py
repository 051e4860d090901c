"""Process groups of torch.distributed: which backends, and one of a process that is alone."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

LOCAL_RANK = "LOCAL_RANK"  # DeepSpeed takes the GPU of this number, of those that the process sees


def backends() -> str:
    """NCCL where there are GPUs, and Gloo for what lies on the CPU."""
    import torch  # here, because whoever works without a group need not load it

    return "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"


@contextmanager
def group_of_one(wanted: bool = True) -> Iterator[None]:
    """A process group of this process alone, inside; nothing if it is not wanted."""
    if not wanted:
        yield
        return
    from torch import distributed

    before = os.environ.get(LOCAL_RANK)
    os.environ[LOCAL_RANK] = "0"
    store = distributed.HashStore()  # type: ignore[attr-defined]
    distributed.init_process_group(backends(), store=store, rank=0, world_size=1)
    try:
        yield
    finally:
        distributed.destroy_process_group()
        if before is None:
            del os.environ[LOCAL_RANK]
        else:
            os.environ[LOCAL_RANK] = before
