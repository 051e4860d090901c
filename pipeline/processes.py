"""Child processes that do not outlive their parent."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from multiprocessing.connection import wait


def leave_interrupts_to_parent() -> None:
    """Ignore Ctrl-C, which reaches the whole group: the parent decides what ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


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
