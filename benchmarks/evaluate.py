"""How fast exact neighbours are found, beside faiss's exact search on the same rows and threads.

    python -m benchmarks.evaluate [--rows 60000] [--dim 1024] [--count 1] [--rounds 3] [--threads 2]

The rows are like those of a backbone: clusters of some sixty rows, values of different means and scales, rounded to
float16. Each measurement is a process of its own, in turns:

* ours: :func:`pipeline.metrics.nearest.nearest_neighbours` with ``cosine``, from the rows as a store gives them to the
  neighbours that a float64 comparison of all pairs would give;
* faiss: ``IndexFlatIP`` of faiss-cpu on rows that have length one already: adding them and searching ``count`` + 1,
  of which one is the row itself. float32 throughout.

``seconds`` and ``faiss_seconds`` are medians over the rounds, ``peak_rss_mb`` the largest peak of our processes,
interpreter, torch and the rows themselves included; ``agreement`` is the share of neighbours that both name;
``cpu_ratio`` the ratio of processor seconds, of use on a busy machine (with ``--threads 1``: threads that wait for each
other use the processor too). The last line is JSON. faiss comes with ``pip install 'hedgerow[faiss]'``.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

CLUSTER_ROWS = 60
KINDS = ("ours", "faiss")
Run = Callable[[str, Path, int, int], dict[str, Any]]


def make_rows(rows: int, dim: int) -> NDArray[np.float32]:
    """Clustered rows with values of different means and scales."""
    rng = np.random.default_rng(0)
    centre_CD = rng.standard_normal((max(1, rows // CLUSTER_ROWS), dim), dtype=np.float32)
    row_ND = 1.2 * rng.standard_normal((rows, dim), dtype=np.float32) + centre_CD[rng.integers(0, len(centre_CD), rows)]
    row_ND = row_ND * rng.lognormal(0, 0.4, dim) + rng.normal(0, 0.5, dim)
    return row_ND.astype(np.float16).astype(np.float32)


def measure(kind: str, folder: Path, count: int, threads: int) -> dict[str, Any]:
    """Search once in this process; the neighbours go to ``<folder>/<kind>.npy``."""
    row_ND = np.load(folder / "rows.npy")
    search = {"ours": ours, "faiss": with_faiss}[kind](row_ND, count, threads)
    wall, processor = time.perf_counter(), time.process_time()
    neighbour_NC = search()
    wall, processor = time.perf_counter() - wall, time.process_time() - processor
    np.save(folder / f"{kind}.npy", neighbour_NC)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"seconds": wall, "cpu_seconds": processor, "peak_rss_mb": peak}


def ours(row_ND: NDArray[np.float32], count: int, threads: int) -> Callable[[], NDArray[np.int64]]:
    """The project's own search."""
    import torch

    from pipeline.metrics.nearest import nearest_neighbours

    torch.set_num_threads(threads)
    return lambda: nearest_neighbours(row_ND, count=count)


def with_faiss(row_ND: NDArray[np.float32], count: int, threads: int) -> Callable[[], NDArray[np.int64]]:
    """faiss's exact search."""
    import faiss

    faiss.omp_set_num_threads(threads)
    row_ND /= np.linalg.norm(row_ND, axis=1, keepdims=True)

    def search() -> NDArray[np.int64]:
        index = faiss.IndexFlatIP(row_ND.shape[1])
        index.add(row_ND)
        return np.asarray(index.search(row_ND, count + 1)[1])

    return search


def in_own_process(kind: str, folder: Path, count: int, threads: int) -> dict[str, Any]:
    """:func:`measure` in a fresh process."""
    options = ["--measure", kind, "--folder", str(folder), "--count", str(count), "--threads", str(threads)]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.evaluate", *options],
        stdout=subprocess.PIPE,
        env={**os.environ, "OMP_NUM_THREADS": str(threads)},
        check=True,
    )
    return dict(json.loads(done.stdout.splitlines()[-1]))


def agreement(ours_NC: NDArray[np.int64], faiss_NK: NDArray[np.int64]) -> float:
    """Share of the neighbours that both name at the same place, the row itself left out by index."""
    self_N1 = np.arange(len(faiss_NK))[:, None]
    others = [row_K[row_K != index][: ours_NC.shape[1]] for row_K, (index,) in zip(faiss_NK, self_N1, strict=True)]
    return float((np.array(others) == ours_NC).mean())


def compare(*, rows: int, dim: int, count: int, rounds: int, threads: int, run: Run = in_own_process) -> dict[str, Any]:
    """What the last line says."""
    found: dict[str, list[dict[str, Any]]] = {kind: [] for kind in KINDS}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        np.save(folder / "rows.npy", make_rows(rows, dim))
        for turn in range(rounds):
            for kind in KINDS:
                found[kind].append(run(kind, folder, count, threads))
            said = (f"{kind} {found[kind][-1]['seconds']:.1f} s" for kind in KINDS)
            print(f"round {turn}: {', '.join(said)}", flush=True)
        agreed = agreement(np.load(folder / "ours.npy"), np.load(folder / "faiss.npy"))
    wall, processor = (
        {kind: statistics.median(one[key] for one in found[kind]) for kind in KINDS}
        for key in ("seconds", "cpu_seconds")
    )
    return {
        "rows": rows,
        "dim": dim,
        "seconds": round(wall["ours"], 2),
        "peak_rss_mb": round(max(one["peak_rss_mb"] for one in found["ours"])),
        "faiss_seconds": round(wall["faiss"], 2),
        "ratio_to_faiss": round(wall["ours"] / wall["faiss"], 3),
        "cpu_ratio": round(processor["ours"] / processor["faiss"], 3),
        "agreement": round(agreed, 6),
        "count": count,
        "threads": threads,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=60_000)
    parser.add_argument("--dim", type=int, default=1024)
    parser.add_argument("--count", type=int, default=1, help="neighbours of a row")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--measure", choices=KINDS, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.measure:
        print(json.dumps(measure(given.measure, given.folder, given.count, given.threads)))
        return
    shape = {"rows": given.rows, "dim": given.dim, "count": given.count}
    print(json.dumps(compare(**shape, rounds=given.rounds, threads=given.threads)))


if __name__ == "__main__":
    main()
