"""How many views a batch holds, where the config says ``auto``: found once, then recorded in the store."""

from __future__ import annotations

import time

import torch

from pipeline.backbones import Group

ON_CPU = 32  # larger ones gain nothing there, and their activations leave the caches
COMPILED = 256  # each size is compiled anew, which costs more than a search could gain
SMALLEST, LARGEST = 32, 1024
WORTH = 1.03  # a doubling that gains less than this is not taken: it costs memory and a longer last batch
ROUNDS = 3


def find_batch_size(group: Group) -> int:
    """The smallest power of two beyond which the backbones of ``group`` gain nothing on their device.

    On a GPU each size is run a few times on random pixels; a size that does not fit into its memory ends the search.
    """
    if group.network.device.type != "cuda":
        return ON_CPU
    if group.network.fixed_batch:
        return COMPILED
    best, best_rate, size = SMALLEST, 0.0, SMALLEST
    while size <= LARGEST:
        try:
            rate = _views_a_second(group, size)
        except torch.OutOfMemoryError:
            torch.cuda.empty_cache()
            break
        if rate < best_rate * WORTH:
            break
        best, best_rate, size = size, rate, size * 2
    return best


@torch.no_grad()
def _views_a_second(group: Group, size: int) -> float:
    side, device = group.network.preprocessing.size, group.network.device
    images_BCHW = torch.rand(size, 3, side, side, device=device).contiguous(memory_format=torch.channels_last)
    group.represent(images_BCHW)
    torch.cuda.synchronize(device)
    start = time.perf_counter()
    for _ in range(ROUNDS):
        group.represent(images_BCHW)
    torch.cuda.synchronize(device)
    return ROUNDS * size / (time.perf_counter() - start)
