"""A few processes that are started once and form a process group of gloo for each call, as a launcher would."""

from __future__ import annotations

import multiprocessing
import os
import signal
import tempfile
from collections.abc import Callable
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from pipeline.processes import end_with_parent

TIMEOUT = 120  # seconds after which nothing in these tests is still under way


class Ranks:
    """``count`` processes, of which each call uses the first ``size``."""

    def __init__(self, count: int) -> None:
        self.context = multiprocessing.get_context("spawn")
        self.folder = tempfile.TemporaryDirectory()
        self.calls = 0
        self.members = [self._start() for _ in range(count)]

    def _start(self) -> tuple[Any, Connection]:
        ours, theirs = self.context.Pipe()
        process = self.context.Process(target=_serve, args=(theirs,), daemon=True)
        process.start()
        theirs.close()
        return process, ours

    def run(self, size: int, function: Callable[..., Any], *arguments: Any) -> list[Any]:
        """``function(*arguments)`` in each process of a world of ``size``: what each returned, or its error as text.

        One that died is replaced afterwards, and its result is its exit code.
        """
        self.calls += 1
        meeting = Path(self.folder.name) / str(self.calls)
        members = dict(enumerate(self.members[:size]))
        for rank, (_, pipe) in members.items():
            pipe.send((rank, size, str(meeting), function, arguments))
        results: list[Any] = [None] * size
        while members:
            ready = wait([pipe for _, pipe in members.values()], timeout=TIMEOUT)
            assert ready, f"processes {sorted(members)} hang"
            for rank, (process, pipe) in list(members.items()):
                if pipe not in ready:
                    continue
                try:
                    results[rank] = pipe.recv()
                except EOFError:
                    process.join()
                    results[rank] = process.exitcode
                    self.members[rank] = self._start()
                del members[rank]
        return results

    def close(self) -> None:
        """End the processes."""
        for process, pipe in self.members:
            pipe.close()
            process.kill()
            process.join()
        self.folder.cleanup()


def _serve(pipe: Connection) -> None:
    import torch
    import torch.distributed as dist

    end_with_parent()
    torch.set_num_threads(1)
    while True:
        try:
            rank, size, meeting, function, arguments = pipe.recv()
        except EOFError:
            return
        dist.init_process_group(
            "gloo", init_method=f"file://{meeting}", rank=rank, world_size=size, timeout=timedelta(seconds=TIMEOUT)
        )
        try:
            result = function(*arguments)
        except BaseException as error:
            result = f"{type(error).__name__}: {error}"
        dist.destroy_process_group()
        pipe.send(result)


def die() -> None:
    """End this process as the system does for want of memory."""
    os.kill(os.getpid(), signal.SIGKILL)
