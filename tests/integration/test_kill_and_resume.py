"""SIGKILL at any moment, then the same command: the bytes of a calm run."""

from __future__ import annotations

import random
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline.files import sha256_file
from pipeline.training.state import state_step
from tests.integration.conftest import finish, one, start, tree

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("whole_road")]


def kill_when(process: subprocess.Popen[bytes], ready: Callable[[], bool], delay: float) -> bool:
    """SIGKILL ``delay`` seconds after ``ready``; False when the process ended before."""
    while not ready():
        if process.poll() is not None:
            break
        time.sleep(0.001)
    time.sleep(delay)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    return process.returncode == -signal.SIGKILL


def of_the_probe(path: str) -> bool:
    """The probe writes into the store too, after the cache."""
    first, second, *_ = [*path.split("/"), ""]
    return first == "probe" or (first in ("task_loss", "entropy", "top1_correct") and second == "c")


def test_cache(calm: Path, tmp_path: Path) -> None:
    (tmp_path / one(calm, "pack").name).symlink_to(one(calm, "pack"))
    rng = random.Random(0)

    def there(pattern: str, count: int) -> Callable[[], bool]:
        return lambda: len(list(tmp_path.glob(f"cache-*/store/{pattern}"))) >= count

    moments = [there("embedding/c/*", 1), there("commits/*.json", 2), there("label/c/*", 4)]
    kills = [kill_when(start(tmp_path, "stage=cache"), ready, rng.uniform(0, 0.02)) for ready in moments]
    assert sum(kills) == 3
    finish(tmp_path, "stage=cache")
    undisturbed = {path: sha for path, sha in tree(one(calm, "cache") / "store").items() if not of_the_probe(path)}
    assert tree(one(tmp_path, "cache") / "store") == undisturbed
    assert "nothing to do" in finish(tmp_path, "stage=cache")


def test_training(calm: Path, tmp_path: Path) -> None:
    for stage in ("pack", "cache", "probe"):
        (tmp_path / one(calm, stage).name).symlink_to(one(calm, stage))
    seen: set[int] = set()

    def checkpoints() -> set[int]:
        return {path.stat().st_ino for path in tmp_path.glob("train_head-*/checkpoint.safetensors")}

    def moved_on() -> bool:
        return bool(checkpoints() - seen)

    kills = 0
    for delay in (0.0, 0.02):
        kills += kill_when(start(tmp_path, "stage=train_head"), moved_on, delay)
        seen.update(checkpoints())
    assert kills == 2
    finish(tmp_path, "stage=train_head")
    for seed in (0, 1):
        head = f"seed-{seed}/head.safetensors"
        assert sha256_file(one(tmp_path, "train_head") / head) == sha256_file(one(calm, "train_head") / head)


def test_training_that_is_told_to_end_saves_its_state_and_goes_on_there(calm: Path, tmp_path: Path) -> None:
    for stage in ("pack", "cache", "probe"):
        (tmp_path / one(calm, stage).name).symlink_to(one(calm, stage))
    process = start(tmp_path, "stage=train_head", rarely=True)
    while not list(tmp_path.glob("train_head-*/seed-0/log.csv")):
        assert process.poll() is None, process.communicate()
        time.sleep(0.001)
    process.terminate()
    output, _ = process.communicate()
    assert process.returncode == 143
    assert b"stopped; what is done stays done, and this goes on:\n  submit stage=train_head" in output
    step = state_step(one(tmp_path, "train_head"))
    assert 0 < step < 400
    finish(tmp_path, "stage=train_head")
    for seed in (0, 1):
        for name in ("head.safetensors", "head.json"):
            head = f"seed-{seed}/{name}"
            assert sha256_file(one(tmp_path, "train_head") / head) == sha256_file(one(calm, "train_head") / head)
    logged = [line.split(",")[0] for line in (one(tmp_path, "train_head") / "seed-0/log.csv").read_text().splitlines()]
    assert logged == ["step", *(str(line) for line in range(20, 401, 20))]
