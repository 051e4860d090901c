"""The processes of one task: which GPU each has, and the process group of those that share one unit."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

from submitit import JobEnvironment
from submitit.helpers import TorchDistributedEnvironment

from cluster.process_groups import LOCAL_RANK, backends
from stages.base import Unit

Tell = Callable[[Unit | None], Unit | None]
VISIBLE = "CUDA_VISIBLE_DEVICES"


def choose_gpu(env: JobEnvironment) -> None:
    """Leave this rank one GPU of those that its node's ranks see together. Before torch is asked for any."""
    visible = [name for name in os.environ.get(VISIBLE, "").split(",") if name]
    ranks = env.num_tasks // env.num_nodes
    if len(visible) > 1 and ranks > 1:
        os.environ[VISIBLE] = visible[env.local_rank % len(visible)]


@contextmanager
def process_group(env: JobEnvironment) -> Iterator[Tell]:
    """All ranks of the task in one process group of torch: NCCL where there are GPUs, else Gloo.

    Gives what the first rank tells the others with, and they hear by: each of them calls it, the first with the value.
    """
    from torch import cuda, distributed  # a task whose ranks work alone need not load it for this

    TorchDistributedEnvironment().export(set_cuda_visible_devices=False)
    if cuda.device_count() == 1:  # its own, see choose_gpu: the first that it sees
        os.environ[LOCAL_RANK] = "0"
    distributed.init_process_group(backends())
    try:
        # waits as long as a unit that somebody else has may take
        telling = distributed.new_group(backend="gloo", timeout=timedelta(days=30))
        assert isinstance(telling, distributed.ProcessGroup), "every rank belongs to it"

        def tell(unit: Unit | None) -> Unit | None:
            box = [unit]
            distributed.broadcast_object_list(box, src=0, group=telling)
            return box[0]

        yield tell
    finally:
        distributed.destroy_process_group()
