"""Stopping at a safe point: somebody asks, and the work ends where nothing is lost or torn.

What asks is process-wide, as signals are: whoever runs the work decides which signals mean it
(:func:`asked_by`) or calls :func:`ask_to_stop`. Long work calls :func:`stop_if_asked` where it may be
left: training after a step, when it has saved its checkpoint; caching between two images, and drops the unit. The same
command goes on afterwards.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_asked = False  # a plain name: setting it takes no lock, so a signal handler may do it at any moment


class Interrupted(BaseException):
    """The work was asked to stop, and did. Like :class:`KeyboardInterrupt` it is no failure and no ``Exception``."""


def ask_to_stop() -> None:
    """Ask all work of this process to stop at its next safe point. A signal handler may call it."""
    global _asked
    _asked = True


def stop_asked() -> bool:
    """Whether somebody has asked."""
    return _asked


def stop_if_asked() -> None:
    """A safe point.

    Raises:
        Interrupted: somebody has asked to stop.
    """
    if _asked:
        raise Interrupted


def stop_if_asked_soon() -> None:
    """A safe point after a child process has died: what ended it may be a signal to all processes of the job.

    This process's turn may come a moment later, so it is waited for.

    Raises:
        Interrupted: somebody has asked to stop.
    """
    for _ in range(10):
        stop_if_asked()
        time.sleep(0.05)
    stop_if_asked()


def forget() -> None:
    """Whoever was asked has stopped: what comes next is not meant."""
    global _asked
    _asked = False


@contextmanager
def asked_by(*signals: int) -> Iterator[None]:
    """While this lasts, the first of ``signals`` asks to stop; the next one does what it did before.

    So a process that was asked with SIGTERM and does not come to a safe point ends at a second SIGTERM. What was asked
    is forgotten at the end. Only the main thread can listen to signals; in others this does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def ask(number: int, frame: FrameType | None) -> None:
        if stop_asked():
            signal.signal(number, before[number])
            signal.raise_signal(number)
        else:
            ask_to_stop()

    before = {number: signal.getsignal(number) for number in signals}
    try:
        for number in signals:
            signal.signal(number, ask)
        yield
    finally:
        for number in signals:
            signal.signal(number, before[number])
        forget()
