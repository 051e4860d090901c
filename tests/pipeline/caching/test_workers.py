"""Threads and processes prepare the same, in order, and end when they should."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.caching.workers import AHEAD, SHARED, Processes, Threads
from pipeline.errors import UserError
from pipeline.faults import Quarantined
from pipeline.images.augmentation import AugmentationConfig
from pipeline.images.prepared import Prepared, ViewPlan
from pipeline.images.preprocessing import Preprocessing
from pipeline.images.tars import TarSample, read_tar
from pipeline.interruption import Interrupted, ask_to_stop


def plan(packed, *sizes: int) -> ViewPlan:
    half = (0.5, 0.5, 0.5)
    return ViewPlan(
        class_names=packed.class_names,
        unlabelled="refused",
        views=("center", "random0"),
        seed=0,
        augmentation=AugmentationConfig(),
        preprocessings=tuple(
            Preprocessing(size=size, mean=half, std=half, crop=0.9, interpolation="bicubic") for size in sizes
        ),
    )


def samples(packed) -> list[TarSample | Quarantined]:
    found = list(read_tar(packed.paths[0]))
    found[3] = Quarantined(key=found[3].key, reason="because")
    found[5] = TarSample(key=found[5].key, data=b"no image", extension="png", fields=found[5].fields)
    return found


def plain(prepared: Iterator[Prepared]) -> list[tuple[object, ...]]:
    return [
        (
            item.key,
            item.label,
            item.reason,
            [(v.pixels.tobytes(), v.pixels.shape, v.params.tobytes()) for v in item.views],
        )
        for item in prepared
    ]


def test_processes_prepare_what_threads_prepare(packed):
    wanted = plain(Threads(plan(packed, 32, 24), 2).map(samples(packed)))
    assert [bool(reason) for _, _, reason, _ in wanted] == [i in (3, 5) for i in range(len(wanted))]
    assert wanted[0][3][1][1] == (2, 24, 24, 3)
    processes = Processes(plan(packed, 32, 24), 2)
    try:
        assert plain(processes.map(samples(packed))) == wanted
        assert plain(processes.map([])) == []
        half = processes.map(samples(packed))  # given up in the middle, as when a tar breaks
        assert plain([next(half)]) == wanted[:1]
        half.close()
        assert plain(processes.map(samples(packed))) == wanted
    finally:
        processes.close()


def test_a_process_that_dies_is_said_and_replaced(packed):
    processes = Processes(plan(packed, 32), 1)
    try:
        wanted = plain(processes.map(samples(packed)))
        assert processes.pool is not None
        [worker] = processes.pool._processes.values()
        os.kill(worker.pid, signal.SIGKILL)
        with pytest.raises(UserError, match=r"a decoding process died.*cache.workers"):
            plain(processes.map(samples(packed)))
        assert plain(processes.map(samples(packed))) == wanted
    finally:
        processes.close()


def test_a_process_that_dies_while_all_are_told_to_end_is_no_failure(packed):
    """A scheduler signals every process of a job; whose turn comes first is chance."""
    processes = Processes(plan(packed, 32), 1)
    try:
        list(processes.map(samples(packed)))
        assert processes.pool is not None
        [worker] = processes.pool._processes.values()
        os.kill(worker.pid, signal.SIGUSR2)  # ignored: notice is given to the parent
        os.kill(worker.pid, signal.SIGTERM)
        timer = threading.Timer(0.2, ask_to_stop)
        timer.start()
        with pytest.raises(Interrupted):
            list(processes.map(samples(packed)))
        timer.join()
    finally:
        processes.close()


def test_what_is_under_way_is_bounded(packed):
    taken = []

    def endless() -> Iterator[Quarantined]:
        while True:
            taken.append(1)
            yield Quarantined(key="a", reason="because")

    images = Threads(plan(packed, 32), 2).map(endless())
    for _ in range(5):
        next(images)
    images.close()
    assert len(taken) <= 5 + AHEAD * 2 + 1


def test_too_little_shared_memory_is_said_before_anything_is_written(packed, monkeypatch):
    monkeypatch.setattr("pipeline.caching.workers.shutil.disk_usage", lambda path: type("Usage", (), {"free": 1000}))
    with pytest.raises(UserError, match=r"cache.decode=processes: .* MB are free in /dev/shm.*cache.decode=threads"):
        Processes(plan(packed, 32), 1)


CHILD = """
import sys, time
from pathlib import Path
from pipeline.caching.workers import AHEAD, SHARED, Processes, Threads
from pipeline.images.packed import open_packed
from tests.pipeline.caching.test_workers import plan, samples
if __name__ == "__main__":
    packed = open_packed(Path(sys.argv[1]))
    processes = Processes(plan(packed, 32), 2)
    list(processes.map(samples(packed)))
    print(*[p.pid for p in processes.pool._processes.values()], processes.memory.name, flush=True)
    time.sleep(60)
"""


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "Z"


@pytest.mark.skipif(not SHARED.is_dir(), reason="looks into /dev/shm and /proc, which only Linux has")
def test_workers_of_a_killed_process_end(packed, tmp_path):
    script = tmp_path / "child.py"
    script.write_text(CHILD)
    folder = packed.paths[0].parent.parent
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path.cwd()), os.environ.get("PYTHONPATH", "")])}
    child = subprocess.Popen(
        [sys.executable, str(script), str(folder)], stdout=subprocess.PIPE, env=environment, stderr=subprocess.PIPE
    )
    assert child.stdout is not None
    *workers, memory = child.stdout.readline().split()
    child.send_signal(signal.SIGKILL)
    child.communicate()
    shared = SHARED / memory.decode()
    deadline = time.time() + 60
    while time.time() < deadline and (shared.exists() or any(alive(int(pid)) for pid in workers)):
        time.sleep(0.05)
    assert not any(alive(int(pid)) for pid in workers)
    assert not shared.exists()
