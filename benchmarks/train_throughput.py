"""How fast a head trains from a store that is larger than what is held of it in memory.

    python -m benchmarks.train_throughput [--gb 2.1] [--width 1024] [--window 16384] [--rounds 3]

A store of made-up rows (float16, one view, task losses) is written with the project's own writer. Then, in turns within
one run and on the same threads, samples/s of the paper's head (2 × 512, ranking, AdamW, batches of 2,048):

* ours: batches streamed from the store, two windows in memory; timed after the first window, over whole windows;
* ceiling: the same step on ready float32 batches, so nothing is read, gathered or converted;
* baseline: our writing of the published approach: float32 rows and labels read one at a time by a DataLoader, the
  forward pass of a 21,843-class classifier in each step for the task loss, sixteen micro-batches of 128 to a step, in
  fp32 or bf16, whichever is faster here.

Ours, too, is in whichever is faster; a CPU without bfloat16 products is slower in bf16. Rates are medians over the
rounds. Files lie in the page cache for ours and for the baseline alike. Run it on a quiet machine: where others compete
for the cores, torch's threads wait for each other. The last line is JSON.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import resource
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import numpy as np
import torch
from torch.nn.functional import cross_entropy, linear
from torch.utils.data import DataLoader, Dataset

from pipeline.config import parse
from pipeline.heads import make_head
from pipeline.heads.base import RepresentationBatch, Summary
from pipeline.heads.loss_prediction import ranking_loss
from pipeline.memory import keep_freed_memory
from pipeline.representation_store import RepresentationStore, StoreLayout, UnitInfo, UnitRows, fit_rows
from pipeline.representation_store.reader import BatchReader, Reading
from pipeline.training.config import TrainingConfig
from pipeline.training.engines.single import Single
from pipeline.training.members import Member
from pipeline.training.updates import Updates
from pipeline.world import World

UNIT_ROWS, BATCH, MICRO, CLASSES = 8192, 2048, 128, 21_843
READY = 8  # batches of the ceiling
BASELINE_ROWS = 1 << 16  # that the baseline draws from
PRECISIONS = ("fp32", "bf16")
CPU = torch.device("cpu")


def unit_rows(unit: int, width: int) -> UnitRows:
    """Rows like those of a ViT: every value of its own mean and scale, and a loss that some of them tell."""
    rng = np.random.default_rng(unit)
    of_all = np.random.default_rng(1 << 20)
    mean_D, scale_D = of_all.normal(0, 0.5, width), of_all.lognormal(0, 0.4, width)
    embedding_RD = (rng.standard_normal((UNIT_ROWS, width), dtype=np.float32) * scale_D + mean_D).astype(np.float32)
    task_loss_R = np.exp(embedding_RD[:, :8].mean(axis=1) + rng.normal(0, 0.3, UNIT_ROWS)).astype(np.float32)
    ones_RV = np.ones((UNIT_ROWS, 1), dtype=np.float32)
    return UnitRows(
        embedding_RVD=embedding_RD[:, None],
        view_params_RVP=ones_RV[:, None],
        label_R=rng.integers(0, CLASSES, UNIT_ROWS).astype(np.int32),
        keys=[f"{unit:05d}/{row:05d}" for row in range(UNIT_ROWS)],
        scores={"task_loss": task_loss_R[:, None], "entropy": ones_RV, "top1_correct": ones_RV.astype(bool)},
    )


def write_stores(folder: Path, units: int, width: int) -> RepresentationStore:
    """Our store, and beside it the baseline's file: for each row float32 values, then an int64 label."""
    rows, chunk_rows = fit_rows(UNIT_ROWS, width, "float16")
    layout = StoreLayout(
        units=tuple(UnitInfo(name=f"{unit:05d}.tar") for unit in range(units)),
        rows=rows,
        views=("random0",),
        width=width,
        view_params=("flip",),
        key_bytes=16,
        chunk_rows=chunk_rows,
    )
    store = RepresentationStore.create(folder / "store", layout, {"class_names": []})
    with (folder / "rows.bin").open("wb") as file:
        for unit in range(units):
            made = unit_rows(unit, width)
            store.write_unit(unit, made)
            if file.tell() < BASELINE_ROWS * (width * 4 + 8):
                record = np.dtype([("embedding", "<f4", width), ("label", "<i8")])
                records = np.empty(UNIT_ROWS, dtype=record)
                records["embedding"], records["label"] = made.embedding_RVD[:, 0], made.label_R
                file.write(records.tobytes())
    return store


class OneAtATime(Dataset[tuple[torch.Tensor, int]]):
    """The baseline's rows: each item is one read of one row."""

    def __init__(self, path: Path, width: int) -> None:
        self.file, self.width = os.open(path, os.O_RDONLY), width
        self.size = width * 4 + 8
        self.count = path.stat().st_size // self.size

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        data = bytearray(os.pread(self.file, self.size, index * self.size))
        embedding_D = torch.frombuffer(data, dtype=torch.float32, count=self.width)
        return embedding_D, int.from_bytes(data[-8:], "little")


def config(precision: str) -> TrainingConfig:
    """The paper's, in this precision."""
    return parse(TrainingConfig, {"precision": precision, "batch_size": BATCH}, "train_head")


def new_member(width: int, precision: str = "fp32") -> Member:
    """The paper's head in training."""
    head = make_head({"kind": "loss_prediction"})
    head.prepare(Summary(width=width, rows=1, num_classes=CLASSES))
    return Member(head, config(precision), CPU)


def train_on(trained: Single, batches: Iterator[RepresentationBatch], steps: int) -> float:
    """Samples/s over ``steps`` steps."""
    start = time.perf_counter()
    for step in range(steps):
        trained.run(batches, step=step, rates=[1e-3])
    trained.losses.take()
    return steps * BATCH / (time.perf_counter() - start)


def quickest(width: int, ready: Sequence[RepresentationBatch]) -> tuple[str, Single]:
    """The precision in which a step is quickest here, and heads in training in it."""
    engines = {}
    for precision in PRECISIONS:
        engines[precision] = Single([new_member(width, precision)], config(precision), World())
        train_on(engines[precision], itertools.cycle(ready), 2)
    rates = {name: train_on(engine, itertools.cycle(ready), 3) for name, engine in engines.items()}
    best = max(rates, key=lambda name: rates[name])
    return best, engines[best]


def ours(store: RepresentationStore, trained: Single, window: int, steps: int) -> float:
    """Streamed: the first window is not timed, since it is waited for while nothing is done."""
    reader = BatchReader(store, trained.members[0].head.needs, Reading(batch_size=BATCH, window=window, memory=0))
    assert not reader.resident
    first = window // BATCH
    with closing(reader.batches(0, first + steps)) as batches:
        train_on(trained, batches, first)
        return train_on(trained, batches, steps)


class Baseline:
    """The published approach."""

    def __init__(self, path: Path, width: int) -> None:
        member = new_member(width)
        self.head, self.optimizer = member.head, Updates([member]).optimizer
        self.loader = DataLoader(OneAtATime(path, width), batch_size=MICRO, shuffle=True, drop_last=True)
        generator = torch.Generator().manual_seed(0)
        self.weight_CD = torch.randn(CLASSES, width, generator=generator) / width**0.5
        self.bias_C = torch.zeros(CLASSES)
        self.bf16 = self.classify_seconds(True) < self.classify_seconds(False)

    def classify_seconds(self, bf16: bool) -> float:
        """Of a micro-batch, once its memory is there: what is quicker for few rows need not be for as many as these."""
        x_BD = torch.randn(MICRO, self.weight_CD.shape[1])
        for _ in range(2):
            start = time.perf_counter()
            with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16, enabled=bf16):
                linear(x_BD, self.weight_CD, self.bias_C)
        return time.perf_counter() - start

    def run(self, steps: int) -> float:
        """Samples/s over ``steps`` steps of sixteen micro-batches."""
        parts, optimizer, head = BATCH // MICRO, self.optimizer, self.head
        rows = iter(self.loader)
        start = time.perf_counter()
        for _ in range(steps):
            optimizer.zero_grad()
            for embedding_BD, label_B in itertools.islice(rows, parts):
                with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.bf16):
                    with torch.no_grad():
                        logits_BC = linear(embedding_BD, self.weight_CD, self.bias_C)
                        task_loss_B = cross_entropy(logits_BC, label_B, reduction="none")
                    loss = ranking_loss(head(embedding_BD).uncertainty_B, task_loss_B, margin=0.1).total
                (loss / parts).backward()
            optimizer.step()
        return steps * BATCH / (time.perf_counter() - start)


def bytes_per_sample(store: RepresentationStore) -> float:
    """Bytes on disk of what training reads, a sample."""
    paths = [store.shard_path(array, unit) for array in ("embedding", "task_loss") for unit in store.counts()]
    samples = sum(store.counts().values()) * len(store.layout.views)
    return sum(path.stat().st_size for path in paths) / samples


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gb", type=float, default=2.1, help="10⁹ bytes of representations in the store")
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--window", type=int, default=16_384, help="rows mixed at once; two windows are in memory")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--windows", type=int, default=3, help="windows that are timed in a round")
    arguments = parser.parse_args()
    units = max(2, round(arguments.gb * 1e9 / (UNIT_ROWS * arguments.width * 2)))
    steps = arguments.windows * arguments.window // BATCH
    keep_freed_memory()  # as training does
    rates: dict[str, list[float]] = {"ours": [], "ceiling": [], "baseline": []}

    with tempfile.TemporaryDirectory() as name:
        store = write_stores(Path(name), units, arguments.width)
        baseline, needs = Baseline(Path(name) / "rows.bin", arguments.width), new_member(arguments.width).head.needs
        reader = BatchReader(store, needs, Reading(batch_size=BATCH, window=arguments.window, memory=0))
        ready = list(reader.batches(0, READY))
        precision, trained = quickest(arguments.width, ready)
        for turn in range(arguments.rounds):
            rates["ours"].append(ours(store, trained, arguments.window, steps))
            rates["ceiling"].append(train_on(trained, itertools.cycle(ready), steps))
            rates["baseline"].append(baseline.run(1))
            print(f"round {turn}: " + ", ".join(f"{key} {value[-1]:,.0f}/s" for key, value in rates.items()))
        stored = bytes_per_sample(store)

    rate = {key: statistics.median(value) for key, value in rates.items()}
    result = {
        **{key: round(value, 1) for key, value in rate.items()},
        "ours_over_ceiling": round(rate["ours"] / rate["ceiling"], 4),
        "ours_over_baseline": round(rate["ours"] / rate["baseline"], 2),
        "bytes_per_sample": round(stored, 1),
        "peak_rss_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
        "rows": units * UNIT_ROWS,
        "width": arguments.width,
        "threads": torch.get_num_threads(),
        "precision": precision,
        "baseline_precision": "bf16" if baseline.bf16 else "fp32",
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
