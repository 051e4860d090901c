"""Memory does not grow with the number of units."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.pipeline.images.dirt import CLASSES, clean_sample, tar_bytes

UNITS, EARLY = 80, 20
PROGRAM = """
import json, sys
from pathlib import Path
import torch
from pipeline.caching.job import CacheJob
from pipeline.caching.settings import CacheSettings
from pipeline.images.packed import open_packed
from pipeline.progress import Silent

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 1e6

if __name__ == "__main__":
    torch.set_num_threads(1)
    folder = Path(sys.argv[1])
    tars = open_packed({"kind": "webdataset", "root": str(folder), "class_list": str(folder / "classes.txt")})
    backbone = {"model": "resnet10t", "weights": "random", "size": 32, "num_classes": 0, "device": "cpu"}
    settings = CacheSettings(views=("center",), random_views=1, decode=sys.argv[3], workers=2)
    job = CacheJob(tars=tars, stores={folder / "store": backbone}, settings=settings)
    seen = []
    for unit in job.missing():
        job.run(unit, Silent())
        seen.append(resident())
    print(json.dumps([seen[int(sys.argv[2]) - 1], seen[-1], len(seen)]))
"""


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads /proc")
@pytest.mark.parametrize("decode", ["threads", "processes"])
def test_memory_is_flat(tmp_path: Path, decode: str) -> None:
    rng = np.random.default_rng(0)
    (tmp_path / "classes.txt").write_text("".join(f"{i}\n" for i in range(CLASSES)))
    for unit in range(UNITS):
        members = [member for index in range(4) for member in clean_sample(rng, f"{unit}/{index}")]
        (tmp_path / f"{unit:04d}.tar").write_bytes(tar_bytes(members))
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    environment = {**os.environ, "PYTHONPATH": str(Path.cwd())}
    done = subprocess.run(
        [sys.executable, str(program), str(tmp_path), str(EARLY), decode],
        capture_output=True,
        text=True,
        env=environment,
        check=True,
    )
    early, late, units = json.loads(done.stdout.splitlines()[-1])
    assert units == UNITS
    assert late - early < 8, f"{early:.0f} MB after {EARLY} units, {late:.0f} MB after {UNITS}"
