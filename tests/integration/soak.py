"""A cache of dirty tars under three workers that are killed again and again must end as one calm worker's does.

    python -m tests.integration.soak [--units 200] [--kills 20] [--seed 0] [--json FILE]

Tars with every kind of dirt of tests/pipeline/images/dirt.py among clean samples, and some tars that are broken as a
whole, are cached by one worker, and by three processes that share the units (cluster.processes=3). At random moments
one of these or the command itself gets SIGKILL; the command is given again until nothing is missing. Then both stores
are the same, byte for byte; quarantined is what should be, each with its reason; all that is whole is committed, and
nothing else.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.files import sha256_file
from pipeline.representation_store import RepresentationStore
from tests.pipeline.images.dirt import (
    BROKEN_KINDS,
    CLASSES,
    KINDS,
    agrees,
    broken_tar,
    clean_sample,
    dirty_sample,
    tar_bytes,
)

ROOT = Path(__file__).resolve().parents[2]
BACKBONE = "model: resnet10t\nweights: random\nsize: 32\nnum_classes: 0\ndevice: cpu\n"
CLEAN = 6  # clean samples of a tar
DIRTY = 3  # dirty ones of a dirty tar
EVERY = 2  # one tar in so many is dirty …
BROKEN_EVERY = 20  # … and one in so many is broken


@dataclass(kw_only=True)
class Expected:
    """What must come out.

    Attributes:
        outcomes: unit → key → None (a row), or what the reason of its quarantine matches.
        broken: units that fail → what the reason matches.
        kinds: how often each kind of dirt was put in.
    """

    outcomes: dict[int, dict[str, str | None]] = field(default_factory=dict)
    broken: dict[int, str] = field(default_factory=dict)
    kinds: Counter[str] = field(default_factory=Counter)


def write_tars(folder: Path, units: int, seed: int) -> Expected:
    """The collection, and what must come of it."""
    folder.mkdir(parents=True)
    (folder / "classes.txt").write_text("".join(f"class {i}\n" for i in range(CLASSES)))
    expected, turn = Expected(), 0
    for unit in range(units):
        rng = np.random.default_rng([seed, unit])
        samples: list[tuple[list[tuple[str, bytes]], dict[str, str | None]]] = []
        for index in range(CLEAN):
            key = f"u{unit:05d}/clean{index}"
            samples.append((clean_sample(rng, key), {key: None}))
        if unit % EVERY == 0:
            for index in range(DIRTY):
                kind = KINDS[turn % len(KINDS)]
                turn += 1
                made = dirty_sample(kind, rng, f"u{unit:05d}/dirty{index}x")
                samples.append((list(made.members), dict(made.expected)))
                expected.kinds[kind] += 1
        order = rng.permutation(len(samples))
        data = tar_bytes([member for place in order for member in samples[place][0]])
        if unit % BROKEN_EVERY == BROKEN_EVERY - 1:
            kind = BROKEN_KINDS[(unit // BROKEN_EVERY) % len(BROKEN_KINDS)]
            data, expected.broken[unit] = broken_tar(kind, data)
            expected.kinds[f"tar: {kind}"] += 1
        else:
            expected.outcomes[unit] = {key: what for _, found in samples for key, what in found.items()}
        (folder / f"{unit:05d}.tar").write_bytes(data)
    return expected


def command(folder: Path, runs: Path, processes: int) -> list[str]:
    """The user's command."""
    return [
        *(sys.executable, "-m", "cluster.submit", "stage=cache", "dataset=webdataset", "backbone=tiny"),
        *(f"dataset.root={folder}", f"dataset.class_list={folder / 'classes.txt'}", f"runs_root={runs}"),
        *("cache.views=[center]", "cache.random_views=1", "cache.max_quarantined=1", "cache.workers=1"),
        *(f"cluster.processes={processes}", "--config-dir", str(runs / "configs")),
    ]


def start(folder: Path, runs: Path, processes: int) -> subprocess.Popen[str]:
    """The command in a process of its own."""
    (runs / "configs" / "backbone").mkdir(parents=True, exist_ok=True)
    (runs / "configs" / "backbone" / "tiny.yaml").write_text(BACKBONE)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    with (runs / "output.txt").open("a") as log:
        return subprocess.Popen(
            command(folder, runs, processes), cwd=ROOT, env=environment, stdout=log, stderr=subprocess.STDOUT, text=True
        )


def commits(runs: Path) -> int:
    """How many units are done."""
    return len(list(runs.glob("cache-*/store/commits/*.json")))


def children(pid: int) -> list[int]:
    """The processes that work units for ``pid``."""
    found = []
    with contextlib.suppress(FileNotFoundError):
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="utf-8").split():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes():
                    found.append(int(child))
    return found


def disturbed(folder: Path, runs: Path, *, units: int, kills: int, seed: int, workers: int) -> dict[str, Any]:
    """Run with several workers, killing at random moments, until a run ends by itself; what was done to it."""
    rng = random.Random(seed)
    done: Counter[str] = Counter()
    starts = 0
    while True:
        before, starts = commits(runs), starts + 1
        process = start(folder, runs, workers)
        # the work is spread over the kills: each run gets a little further, then something is killed
        wanted = before + max(1, (units - before) // (kills - sum(done.values()) + 1) - 2)
        while sum(done.values()) < kills and process.poll() is None:
            if commits(runs) < wanted:
                time.sleep(0.002)
                continue
            time.sleep(rng.uniform(0, 0.3))
            target = rng.choice([process.pid, *children(process.pid)])
            with contextlib.suppress(ProcessLookupError):
                os.kill(target, signal.SIGKILL)
                done["command" if target == process.pid else "worker"] += 1
            if target == process.pid:
                break
            wanted = commits(runs) + 1
        process.wait()
        if process.returncode != -signal.SIGKILL and sum(done.values()) >= kills:
            again = start(folder, runs, workers)  # what failed because its worker was killed
            again.wait()
            return {"kills": dict(done), "starts": starts + 1, "exit_code": again.returncode}


def tree(store: Path) -> dict[str, str]:
    """Every object of a store; telemetry is of the run, not of the result."""
    files = [path for path in sorted(store.rglob("*")) if path.is_file() and "telemetry" not in path.parts]
    return {str(path.relative_to(store)): sha256_file(path) for path in files}


def problems(store: Path, expected: Expected) -> list[str]:
    """What is not as it should be; empty when all is well."""
    found = RepresentationStore.open(store)
    wrong = [f"unit {unit} is not committed" for unit in expected.outcomes.keys() - set(found.committed())]
    wrong += [f"unit {unit} is broken and committed" for unit in expected.broken.keys() & set(found.committed())]
    for unit in found.committed():
        outcome: dict[str, str | None] = {key.decode(): None for key in found.read("key", unit)}
        outcome.update({item.key: item.reason for item in found.commit(unit).quarantined})
        wrong += [f"unit {unit}: {line}" for line in agrees(outcome, expected.outcomes.get(unit, {}))]
    return wrong


def soak(folder: Path, *, units: int, kills: int, seed: int, workers: int = 3) -> dict[str, Any]:
    """All of it below ``folder``; the facts, with ``problems`` and ``same_bytes``."""
    began = time.time()
    expected = write_tars(folder / "tars", units, seed)
    for name in ("calm", "killed"):
        (folder / name).mkdir()
    calm = start(folder / "tars", folder / "calm", 1)
    calm.wait()
    disturbance = disturbed(folder / "tars", folder / "killed", units=units, kills=kills, seed=seed, workers=workers)
    stores = [next((folder / name).glob("cache-*/store")) for name in ("calm", "killed")]
    trees = [tree(store) for store in stores]
    return {
        "units": units,
        "workers": workers,
        "samples": sum(map(len, expected.outcomes.values())),
        "kinds_of_dirt": len(expected.kinds),
        "quarantined": sum(what is not None for found in expected.outcomes.values() for what in found.values()),
        "broken_tars": len(expected.broken),
        **disturbance,
        "calm_exit_code": calm.returncode,
        "objects": len(trees[0]),
        "same_bytes": trees[0] == trees[1],
        "different": sorted(key for key in trees[0].keys() | trees[1].keys() if trees[0].get(key) != trees[1].get(key)),
        "problems": [*problems(stores[0], expected), *problems(stores[1], expected)],
        "seconds": round(time.time() - began),
    }


def main() -> int:
    """Run it as a command; exit code 1 if something is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--units", type=int, default=200)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="where to write the facts too")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        facts = soak(Path(name), units=arguments.units, kills=arguments.kills, seed=arguments.seed)
        if not facts["same_bytes"] or facts["problems"]:
            print((Path(name) / "killed" / "output.txt").read_text()[-5000:])
    if arguments.json:
        arguments.json.write_text(json.dumps(facts, indent=2) + "\n")
    print(json.dumps(facts))
    return 0 if facts["same_bytes"] and not facts["problems"] else 1


if __name__ == "__main__":
    sys.exit(main())
