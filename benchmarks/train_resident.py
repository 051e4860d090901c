"""How fast heads train on one device from a store that lies in its memory: one head, and several side by side.

    python -m benchmarks.train_resident [--gb 2] [--seeds 5] [--device auto] [--batched auto] [--steps 300] [--rounds 3]

A store of made-up rows (float16, 1,024 wide, one view, task losses; see benchmarks/train_throughput.py) is loaded once.
Then, in turns within one run, samples/s of the paper's head (2 × 512, ranking, AdamW, batches of 2,048): ours, by the
reader and the sampler; the ceiling, the same step on batches that lie ready on the device; and ours with several
seeds in one pass, a sample counting once. On a GPU a step is one CUDA graph (`train_head.cuda_graph=auto`) and several
seeds are one batch of computation; ``said`` of the result tells where that could not be. The last line is JSON.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import torch

from benchmarks.train_throughput import BATCH, CLASSES, READY, UNIT_ROWS, write_stores
from pipeline.heads import make_head
from pipeline.heads.base import RepresentationBatch, Summary
from pipeline.memory import keep_freed_memory
from pipeline.representation_store.reader import BatchReader, Reading
from pipeline.training.config import TrainingConfig
from pipeline.training.engines.single import Single
from pipeline.training.members import Member
from pipeline.world import World

WARM = 20  # steps that are not timed


def new_engine(count: int, width: int, device: torch.device, batched: str) -> Single:
    """So many heads of the paper in training, of different seeds."""
    settings: dict[str, Any] = {"batch_size": BATCH, "cuda_graph": "auto", "batched": batched}
    config, members = TrainingConfig(**settings), []
    for seed in range(count):
        head = make_head({"kind": "loss_prediction"}, seed=seed)
        head.prepare(Summary(width=width, rows=1, num_classes=CLASSES))
        members.append(Member(head, config, device))
    return Single(members, config, World())


def rate(trained: Single, batches: Iterator[RepresentationBatch], steps: int, device: torch.device) -> float:
    """Samples/s over ``steps`` steps, after some that are not timed."""
    start = 0.0
    for step in range(WARM + steps):
        if step == WARM:
            synchronise(device)
            start = time.perf_counter()
        trained.run(batches, step=step, rates=[1e-3] * len(trained.members))
    synchronise(device)
    trained.losses.take()
    return steps * BATCH / (time.perf_counter() - start)


def synchronise(device: torch.device) -> None:
    """Wait until the device is done."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gb", type=float, default=2, help="10⁹ bytes of representations in the store")
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--batched", default="auto", choices=["auto", "on", "off"], help="several heads at once")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    name = ("cuda" if torch.cuda.is_available() else "cpu") if arguments.device == "auto" else arguments.device
    device, width, steps = torch.device(name), arguments.width, arguments.steps
    units = max(2, round(arguments.gb * 1e9 / (UNIT_ROWS * width * 2)))
    rates: dict[str, list[float]] = {"ours": [], "ceiling": [], "side_by_side": []}
    if device.type == "cpu":
        keep_freed_memory()  # as training does
    with tempfile.TemporaryDirectory() as folder:
        store = write_stores(Path(folder), units, width)
        one, several = (new_engine(count, width, device, arguments.batched) for count in (1, arguments.seeds))
        reader = BatchReader(store, one.members[0].head.needs, Reading(batch_size=BATCH, memory=1 << 40, device=device))
        start = time.perf_counter()
        ready = list(reader.batches(0, READY))
        loaded = time.perf_counter() - start
        for turn in range(arguments.rounds):
            for key, trained in (("ours", one), ("side_by_side", several)):
                with closing(reader.batches(0, WARM + steps)) as batches:
                    rates[key].append(rate(trained, batches, steps, device))
            rates["ceiling"].append(rate(one, itertools.cycle(ready), steps, device))
            print(
                f"round {turn}: " + ", ".join(f"{key} {value[-1]:,.0f}/s" for key, value in rates.items()), flush=True
            )
    found = {key: statistics.median(value) for key, value in rates.items()}
    result = {
        **{key: round(value, 1) for key, value in found.items()},
        "ours_over_ceiling": round(found["ours"] / found["ceiling"], 4),
        "seeds": arguments.seeds,
        "seeds_cost": round(found["ours"] / found["side_by_side"], 3),  # time of all in one pass over that of one
        "rows": units * UNIT_ROWS,
        "width": width,
        "load_seconds": round(loaded, 2),
        "said": {"one": one.notes, "side_by_side": several.notes},  # how steps are computed, where it is worth a word
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        "threads": torch.get_num_threads(),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
