"""Peak memory: the same for many units as for few, and bounded at 21,843 classes."""

from __future__ import annotations

import multiprocessing
import resource
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path

import torch

from pipeline.files import read_json
from pipeline.probing.saved import fold_name, load_probe
from pipeline.probing.scoring import out_of_fold_scores
from pipeline.probing.settings import ProbeSettings
from pipeline.probing.stream import Means, fit_stream
from pipeline.progress import Silent
from pipeline.representation_store import RepresentationStore
from tests.pipeline.probing.conftest import MakeClusters

CLASSES = 21_843


def peaks(folders: Sequence[Path], values: Mapping[str, object], results: Connection) -> None:
    """In a process of its own: peak MB after each store, probes fitted and all rows scored."""
    torch.set_num_threads(1)
    settings, found = ProbeSettings(**values), []  # type: ignore[arg-type]
    for folder in folders:
        store, probes = RepresentationStore.open(folder), folder.with_suffix(".probes")
        fit_stream(store, settings, folder=probes, means=Means(device=torch.device("cpu")), progress=Silent())
        folds = [load_probe(probes, fold_name(fold)) for fold in range(settings.folds)]
        for unit in store.counts():
            out_of_fold_scores(store, unit, folds, settings)
        found.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
    results.send(found)


def test_peak_memory_grows_neither_with_units_nor_with_rows_times_classes(make_clusters: MakeClusters) -> None:
    few = make_clusters("few", counts=(1024,) * 2, width=256, chunk_rows=128)
    many = make_clusters("many", counts=(1024,) * 16, width=256, chunk_rows=128)
    wide = make_clusters("wide", counts=(1500,), width=64, classes=CLASSES)
    values = {"solver": "stream", "memory_gb": 1e-9, "folds": 2, "l2": (0.1, 0.01), "max_rows": 300, "passes": 1,
              "min_steps": 2, "batch_size": 256, "window": 512}  # fmt: skip
    here, there = multiprocessing.Pipe(duplex=False)
    stores = [store.path for store in (few, many, wide)]
    process = multiprocessing.get_context("spawn").Process(target=peaks, args=(stores, values, there))
    process.start()
    there.close()
    after_few, after_many, after_wide = here.recv()
    process.join()
    assert after_many - after_few < 8, "its rows are 17 MB as float16, 34 MB as float32"
    assert after_wide - after_many < 600, "logits of all rows are 1,050 MB in the four matrices that scores need"
    assert read_json(wide.path.with_suffix(".probes") / "fold-0.json")["rows"] > 500
