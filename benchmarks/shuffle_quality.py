"""How well batches are mixed, by the size of the window, beside a full permutation.

    python -m benchmarks.shuffle_quality [--units 400] [--rows 4096] [--chunk 512] [--classes 1000] [--batch 2048]

Index arithmetic alone; no store is written, and nothing is timed. A store of units × rows is laid out twice: with the
classes spread over all units, as packing in random order leaves them, and sorted, so that neighbouring rows and units
are of one class, as in a tar a class. For each window, over the batches of one epoch:

* units: effective number of units in a batch, 1 / Σ p², p a unit's share of it (median);
* label χ²/df: Pearson's statistic of the batch's labels against those of the store, by its degrees of freedom (mean).
  About 1 − batch / N where a batch is a random draw of the rows; 2 means that its label counts vary as those of half
  as many rows would.

The first line is a full permutation by numpy's own generator, which is what the others are to be compared with.
The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from pipeline.representation_store.blocks import blocks_of
from pipeline.representation_store.sampler import Sampler
from pipeline.training.config import TrainingConfig

Ints = NDArray[np.int64]
WINDOWS = tuple(1 << power for power in range(12, 21))


def effective(unit_B: Ints, units: int) -> float:
    """Effective number of units in a batch."""
    share = np.bincount(unit_B, minlength=units) / len(unit_B)
    return float(1 / np.square(share).sum())


def chi_square(label_B: Ints, share_C: NDArray[np.float64]) -> float:
    """Pearson's statistic by its degrees of freedom."""
    expected_C = share_C * len(label_B)
    found_C = np.bincount(label_B, minlength=len(share_C))
    return float((np.square(found_C - expected_C) / expected_C).sum() / (len(share_C) - 1))


def measure(batches: Iterator[Ints], unit_N: Ints, labels: dict[str, Ints]) -> dict[str, float]:
    """Of the batches of an epoch, given as rows."""
    rows = list(batches)
    units = int(unit_N.max()) + 1
    found = {"units": float(np.median([effective(unit_N[row_B], units) for row_B in rows]))}
    for name, label_N in labels.items():
        share_C = np.bincount(label_N) / len(label_N)
        found[name] = float(np.mean([chi_square(label_N[row_B], share_C) for row_B in rows]))
    return found


def compare(
    *, units: int, rows: int, chunk: int, classes: int, batch: int, windows: tuple[int, ...] = WINDOWS
) -> dict[str, dict[str, float]]:
    """Window, or ``permutation`` → the measures."""
    total = units * rows
    rng = np.random.default_rng(0)
    unit_N = np.repeat(np.arange(units), rows)
    sorted_N = np.arange(total) * classes // total
    labels = {"spread": rng.permutation(sorted_N), "sorted": sorted_N}
    steps = total // batch
    order_N = rng.permutation(total)
    found = {"permutation": measure((order_N[s * batch : (s + 1) * batch] for s in range(steps)), unit_N, labels)}
    blocks = blocks_of(dict.fromkeys(range(units), rows), chunk)
    for window in windows:
        sampler = Sampler(blocks, cached_views=1, views=1, batch_size=batch, window=window, seed=0)
        found[str(window)] = measure((sampler.batch(step)[0] for step in range(steps)), unit_N, labels)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--units", type=int, default=400)
    parser.add_argument("--rows", type=int, default=4096, help="of a unit")
    parser.add_argument("--chunk", type=int, default=512, help="rows of a block: 512 at 1,024 float16 values a row")
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("--batch", type=int, default=2048)
    found = compare(**vars(parser.parse_args()))
    default = str(TrainingConfig().window)
    print("| window | units in a batch | label χ²/df, spread | label χ²/df, sorted |\n|---|---|---|---|")
    for window, values in found.items():
        name = window if window == "permutation" else f"{int(window):,}" + " (default)" * (window == default)
        print(f"| {name} | {values['units']:.0f} | {values['spread']:.2f} | {values['sorted']:.2f} |")
    print(json.dumps(found))


if __name__ == "__main__":
    main()
