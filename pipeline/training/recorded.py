"""A step's work, recorded once as a CUDA graph and replayed on the rows of every other step.

A step of a small head is some hundred kernels, each of which takes less time than Python takes to ask for it. A replay
asks once for all of them. What is recorded must be the same for all steps: the same shapes, no draws (which are a
function of the step), nothing that waits for the GPU. Rows and rates are put where the recorded kernels read them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from pipeline.heads.base import RepresentationBatch
from pipeline.training.members import Member, seed_generators

Record = Callable[[Callable[[], None]], Callable[[], None]]


class Recorded:
    """Work that is replayed."""

    def __init__(
        self, work: Callable[[RepresentationBatch], Tensor], like: RepresentationBatch, record: Record
    ) -> None:
        """Record ``work`` on a batch like ``like``; it is not done yet.

        Args:
            work: changes state in place and returns a tensor.
            like: a batch with the shapes of all.
            record: takes a function, returns what does again what the function did.

        Raises:
            Exception: it cannot be recorded. No tensor has changed.
        """
        self.rows = replace(like, **{name: value.clone() for name, value in _fields(like).items()})
        self._found: Tensor | None = None

        def once() -> None:
            self._found = work(self.rows)

        self._replay = record(once)

    def run(self, batch: RepresentationBatch) -> Tensor:
        """Do the work on other rows; what it returns, in memory of its own."""
        for name, value in _fields(batch).items():
            place = getattr(self.rows, name)
            assert place.shape == value.shape, f"{name}: {tuple(value.shape)}, recorded with {tuple(place.shape)}"
            place.copy_(value, non_blocking=True)
        self._replay()
        assert self._found is not None
        return self._found.clone()


def _fields(batch: RepresentationBatch) -> dict[str, Tensor]:
    return {name: value for name, value in vars(batch).items() if value is not None}


def cuda_graph(work: Callable[[], None]) -> Callable[[], None]:
    """Record the kernels of ``work``, of this thread alone: another one makes batches meanwhile."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        work()
    replay: Callable[[], None] = graph.replay
    return replay


def draws(member: Member, rows: RepresentationBatch) -> bool:
    """Whether a head's loss draws from a global generator; leaves the generators changed."""
    seed_generators(0, member.device)
    before = _states(member.device)
    member.loss(rows)
    return any(not torch.equal(one, other) for one, other in zip(before, _states(member.device), strict=True))


def _states(device: torch.device) -> list[Tensor]:
    """Of the generators, on the CPU, where torch keeps those of a GPU as well."""
    of_gpu = [torch.cuda.get_rng_state(device)] if device.type == "cuda" else []
    return [torch.default_generator.get_state(), *of_gpu]
