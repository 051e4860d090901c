"""How fast the streaming probe fits at the size of ImageNet-21k: rows/s from the store against the steps alone.

    python -m benchmarks.probe_throughput [--classes 21843] [--width 1024] [--folds 5] [--steps 4] [--device cpu]

A store of made-up rows, clustered by class (float16, two views), is written with the project's own writer. Then, in
turns within one run and on the same threads, rows/s of the fit of all folds and of all rows (folds + 1 classifiers):

* streamed: batches through the reader, standardised and stepped, as ``submit stage=probe`` does; timed after the first
  batch, which waits for the first window;
* step only: the same steps on one ready batch, so nothing is read, gathered or standardised.

A row counts once, though each classifier but one sees it. Rates are medians over the rounds. The peak is that of the
whole process: three matrices of classes × width float32 a classifier, one more, a block of logits, and two windows. The
last line is JSON.
"""

from __future__ import annotations

import argparse
import itertools
import json
import resource
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import numpy as np
import torch

from pipeline.probing.feeds import Batch, Moments, Stored, reader_of
from pipeline.probing.rows import Rows, rows_of
from pipeline.probing.settings import ProbeSettings
from pipeline.probing.softmax import Scratch, SoftmaxClassifier
from pipeline.probing.stream import tf32
from pipeline.progress import Silent
from pipeline.representation_store import RepresentationStore, StoreLayout, UnitInfo, UnitRows, fit_rows

UNIT_ROWS = 4096
VIEWS = ("random0", "random1")


def unit_rows(unit: int, centre_CD: np.ndarray) -> UnitRows:
    """Rows around the centres of their classes, the views of a row nearer to each other than to their class."""
    rng = np.random.default_rng(unit + 1)
    classes, width = centre_CD.shape
    label_R = rng.integers(0, classes, UNIT_ROWS)
    row_RVD = centre_CD[label_R][:, None] + rng.standard_normal((UNIT_ROWS, 1, width), dtype=np.float32)
    view_RVD = 0.5 * rng.standard_normal((UNIT_ROWS, len(VIEWS), width), dtype=np.float32)
    return UnitRows(
        embedding_RVD=1 + 0.3 * (row_RVD + view_RVD),
        view_params_RVP=np.ones((UNIT_ROWS, len(VIEWS), 1), np.float32),
        label_R=label_R.astype(np.int32),
        keys=[f"{unit:05d}/{row:05d}" for row in range(UNIT_ROWS)],
        scores={},
    )


def write_store(folder: Path, *, units: int, width: int, classes: int) -> RepresentationStore:
    """The store that is streamed."""
    rows, chunk_rows = fit_rows(UNIT_ROWS, width, "float16")
    layout = StoreLayout(
        units=tuple(UnitInfo(name=f"{unit:05d}.tar") for unit in range(units)),
        rows=rows,
        views=VIEWS,
        width=width,
        view_params=("flip",),
        key_bytes=16,
        chunk_rows=chunk_rows,
    )
    names = [f"n{index:08d}" for index in range(classes)]
    store = RepresentationStore.create(folder, layout, {"class_names": names, "classifier": False})
    centre_CD = np.random.default_rng(0).standard_normal((classes, width), dtype=np.float32)
    for unit in range(units):
        store.write_unit(unit, unit_rows(unit, centre_CD))
    return store


class Fit:
    """The classifiers of all folds and of all rows, stepped on what comes."""

    def __init__(self, store: RepresentationStore, settings: ProbeSettings, device: torch.device) -> None:
        self.store, self.settings, self.device = store, settings, device
        self.rows: Rows = rows_of(store, settings, Silent())
        self.scratch = Scratch(len(store.class_names), store.layout.width, device)
        leave_out: Sequence[int | None] = [None, *range(settings.folds)]
        self.classifiers = [SoftmaxClassifier(leave_out=fold, l2=1e-5, like=self.scratch) for fold in leave_out]

    def rate(self, batches: Iterator[Batch], steps: int) -> float:
        """Rows/s over so many steps, after one that is not timed."""
        self._step(next(batches))
        start = time.perf_counter()
        for batch in itertools.islice(batches, steps):
            self._step(batch)
        return steps * self.settings.batch_size / (time.perf_counter() - start)

    def _step(self, batch: Batch) -> None:
        with tf32(self.device):
            for one in self.classifiers:
                one.step(batch.features_BD, batch.label_B, batch.fold_B, 1e-3, self.scratch)
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def stored(self) -> Stored:
        """The rows as the fit reads them, from the disk."""
        reader = reader_of(self.store, self.rows, self.settings, device=self.device, threads=2, views=1)
        return Stored(reader, self.rows, Moments(mean_D=torch.ones(self.store.layout.width), scale=0.5))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--classes", type=int, default=21_843)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--units", type=int, default=8, help=f"of {UNIT_ROWS} rows")
    parser.add_argument("--batch", type=int, default=4096)
    parser.add_argument("--window", type=int, default=8192, help="rows mixed at once; two windows are in memory")
    parser.add_argument("--steps", type=int, default=4, help="that are timed in a round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--device", default="cpu", help="cpu, cuda, cuda:<n>")
    arguments = parser.parse_args()
    device = torch.device(arguments.device)
    settings = ProbeSettings(
        solver="stream",
        folds=arguments.folds,
        batch_size=arguments.batch,
        window=arguments.window,
        memory_gb=1e-9,
    )
    rates: dict[str, list[float]] = {"streamed": [], "step only": []}
    with tempfile.TemporaryDirectory() as name:
        store = write_store(Path(name), units=arguments.units, width=arguments.width, classes=arguments.classes)
        fit = Fit(store, settings, device)
        with closing(fit.stored().batches(0, 1)) as batches:
            ready = next(batches)
        for turn in range(arguments.rounds):
            with closing(fit.stored().batches(0, arguments.steps + 1)) as batches:
                rates["streamed"].append(fit.rate(batches, arguments.steps))
            rates["step only"].append(fit.rate(itertools.repeat(ready), arguments.steps))
            print(f"round {turn}: " + ", ".join(f"{key} {value[-1]:,.0f} rows/s" for key, value in rates.items()))

    streamed, alone = (statistics.median(rates[key]) for key in ("streamed", "step only"))
    result = {
        "rows_per_s": round(streamed, 1),
        "step_only_rows_per_s": round(alone, 1),
        "ratio": round(streamed / alone, 4),
        "peak_rss_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
        "peak_device_mb": round(torch.cuda.max_memory_allocated(device) / 2**20) if device.type == "cuda" else None,
        "classifiers": arguments.folds + 1,
        "classes": arguments.classes,
        "width": arguments.width,
        "batch": arguments.batch,
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        "threads": torch.get_num_threads(),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
