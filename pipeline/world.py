"""The processes that do one piece of work together: how many there are, which one this is, what they tell each other.

Who starts them is not known here: a launcher initialises the process group of ``torch.distributed`` in each of them.
Where there is none, this process is alone, a world of size 1, and there is nobody to tell.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch.distributed as dist
from torch import Tensor

from pipeline.errors import LeftError, LostError, UserError
from pipeline.interruption import Interrupted


@dataclass(frozen=True, kw_only=True)
class World:
    """One of ``size`` processes that all run the same code. What one calls here, all call, in the same order.

    Raises, from every method:
        LostError: another process has ended, or does not answer within the process group's timeout.
    """

    rank: int = 0
    size: int = 1

    @property
    def first(self) -> bool:
        """Whether this is the process that writes and reports."""
        return self.rank == 0

    def add_up(self, tensor: Tensor) -> None:
        """Replace ``tensor`` by the sum of all processes' tensors, which every one of them gets, bit for bit."""
        if self.size > 1:
            with self.talking():
                dist.all_reduce(tensor)

    def send(self, tensor: Tensor, to: int) -> None:
        """Give ``tensor`` to process ``to``, which calls :meth:`receive`."""
        with self.talking():
            dist.send(tensor, dst=to)

    def receive(self, into: Tensor, source: int) -> None:
        """Fill ``into`` with what process ``source`` sends."""
        with self.talking():
            dist.recv(into, src=source)

    def hand_out(self, tensor: Tensor) -> None:
        """Fill every process's ``tensor`` with that of the first one."""
        if self.size > 1:
            with self.talking():
                dist.broadcast(tensor, src=0)

    def share(self, data: bytes | None) -> bytes | None:
        """The first process's ``data``, in every process."""
        if self.size == 1:
            return data
        held = [data]
        with self.talking():
            dist.broadcast_object_list(held, src=0)
        return held[0]

    def decides(self, answer: bool) -> bool:
        """The first process's ``answer``, in every process."""
        return self.share(b"yes" if answer else None) is not None

    def agree(self, error: BaseException | None) -> None:
        """Go on together, or end together.

        Args:
            error: why this process cannot go on; None = it can.

        Raises:
            BaseException: ``error`` itself, where there is one.
            UserError: another process cannot go on; says which, and its reason.
            Interrupted: another process was asked to stop.
        """
        said: list[tuple[bool, str] | None] = [None] * self.size
        mine = None if error is None else (isinstance(error, Interrupted), str(error) or type(error).__name__)
        if self.size == 1:
            said = [mine]
        else:
            with self.talking():
                dist.all_gather_object(said, mine)
        failed = {rank: what[1] for rank, what in enumerate(said) if what is not None and not what[0]}
        if not any(said):
            return
        if error is None or (failed and self.rank not in failed):
            first = min(failed, default=None)
            error = Interrupted()
            if first is not None:
                error = UserError(f"process {first} of {self.size} failed: {failed[first]}")
        error.agreed = True  # type: ignore[attr-defined]
        raise error

    @contextmanager
    def together(self) -> Iterator[None]:
        """What is done inside is done by all processes, or all of them raise, as :meth:`agree` says.

        It can be nested; inside, no process may fail alone while the others exchange anything but their agreement.
        """
        try:
            yield
        except (LostError, LeftError):
            raise
        except (Exception, Interrupted) as error:
            if getattr(error, "agreed", False):  # within: all raise already
                raise
            self.agree(error)
        else:
            self.agree(None)

    @contextmanager
    def talking(self) -> Iterator[None]:
        """What is told inside by other means than these methods: its errors are a :class:`LostError`."""
        try:
            yield
        except RuntimeError as error:
            raise LostError(
                f"process {self.rank} of {self.size} cannot reach the others any more: one of them has ended, and "
                f"its own output says why. The same command goes on at the last checkpoint. ({error})"
            ) from error


def current_world() -> World:
    """The world of the process group that was initialised here; a world of this process alone if there is none."""
    if not (dist.is_available() and dist.is_initialized()):
        return World()
    return World(rank=dist.get_rank(), size=dist.get_world_size())
