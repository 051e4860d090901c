"""Processes: which of them still run, and children that do not outlive their parent."""

from __future__ import annotations

import functools
import hashlib
import multiprocessing
import os
import signal
import socket
import threading
from multiprocessing.connection import wait
from pathlib import Path

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
PID_NAMESPACE = Path("/proc/self/ns/pid")


@functools.cache
def machine() -> str:
    """Twelve hex digits that two processes share if and only if each may look whether the other one runs.

    A host's name does not tell: nodes made from one image and containers often have the same, and process ids in them
    mean different processes.
    """
    boot = BOOT_ID.read_text(encoding="utf-8").strip() if BOOT_ID.exists() else ""
    namespace = PID_NAMESPACE.readlink() if PID_NAMESPACE.is_symlink() else ""
    return hashlib.sha256(f"{socket.gethostname()}\n{boot}\n{namespace}".encode()).hexdigest()[:12]


def runs(pid: int) -> bool:
    """Whether a process of this machine runs."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # as another user
        return True
    return True


def leave_interrupts_to_parent() -> None:
    """Ignore Ctrl-C and the signals by which schedulers give notice; they reach all, and the parent decides."""
    for number in (signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)


def end_with_parent() -> None:
    """End this process as soon as its parent ends, however that came about.

    A child that waits for work holds both ends of the queue it waits at, so a killed parent would leave it waiting for
    ever.
    """
    threading.Thread(target=_watch, name="end with parent", daemon=True).start()


def _watch() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None, "only a child has a parent to watch"
    wait([parent.sentinel])
    os._exit(1)
