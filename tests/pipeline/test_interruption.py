"""The first signal asks, the second one does what it always did."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

import pytest

from pipeline.interruption import Interrupted, ask_to_stop, asked_by, forget, stop_asked, stop_if_asked


def test_work_stops_at_the_next_safe_point_once_somebody_has_asked() -> None:
    stop_if_asked()
    ask_to_stop()
    assert stop_asked()
    with pytest.raises(Interrupted):
        stop_if_asked()
    forget()
    stop_if_asked()


def test_it_is_no_exception_that_work_could_take_for_a_failure() -> None:
    assert not issubclass(Interrupted, Exception)


def test_a_signal_asks_and_a_second_one_does_what_it_did_before() -> None:
    seen: list[int] = []
    before = signal.signal(signal.SIGUSR2, lambda number, frame: seen.append(number))
    try:
        with asked_by(signal.SIGUSR2, signal.SIGTERM):
            os.kill(os.getpid(), signal.SIGTERM)
            assert stop_asked()
            assert seen == []
            os.kill(os.getpid(), signal.SIGUSR2)
            assert seen == [signal.SIGUSR2]
        assert not stop_asked()
        os.kill(os.getpid(), signal.SIGUSR2)
        assert len(seen) == 2
    finally:
        signal.signal(signal.SIGUSR2, before)


CHILD = """
import signal, sys, time
from pipeline.interruption import asked_by
with asked_by(signal.SIGTERM):
    print("ready", flush=True)
    while True:
        time.sleep(60)  # never comes to a safe point
"""


def test_a_process_without_a_safe_point_ends_at_the_second_sigterm() -> None:
    with subprocess.Popen([sys.executable, "-c", CHILD], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        child.terminate()
        with pytest.raises(subprocess.TimeoutExpired):
            child.wait(0.3)
        child.terminate()
        assert child.wait(10) == -signal.SIGTERM


def test_a_thread_other_than_the_main_one_cannot_listen_and_does_not_fail() -> None:
    done: list[bool] = []

    def work() -> None:
        with asked_by(signal.SIGTERM):
            done.append(stop_asked())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done == [False]
