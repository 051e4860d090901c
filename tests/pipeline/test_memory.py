"""The one thing that can be tested cheaply: big blocks that are freed come back without page faults."""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.memory import keep_freed_memory

MEMORY = Path(__file__).resolve().parents[2] / "pipeline/memory.py"
FAULTS = """
import resource, runpy, sys
if sys.argv[1] == "keep":
    runpy.run_path(sys.argv[2])["keep_freed_memory"]()
def faults(): return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
block = b"x" * (33 << 20)  # more than the largest threshold that glibc sets itself, 32 MB
before = faults()
for _ in range(6):
    block = None
    block = b"x" * (33 << 20)
print(faults() - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="glibc only")
def test_freed_blocks_are_reused() -> None:
    command = [sys.executable, "-c", FAULTS]
    count = {
        how: int(subprocess.run([*command, how, str(MEMORY)], capture_output=True, check=True, text=True).stdout)
        for how in ("keep", "leave")
    }
    assert count["keep"] < count["leave"] / 3


def test_elsewhere_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    keep_freed_memory()
