"""What storing embeddings as int8 does to R-AUROC, seed by seed, and whether that is more than noise.

    python -m benchmarks.dtype_scores [experiment=demo] [key=value …] [--seeds 12] [--orders 0,1,2,3] [--noise 3]

The experiment's chain up to `evaluate` must be done with the same settings. For each order of the batches
(`train_head.data_seed`), its head is trained with so many seeds on the upstream embeddings as they are stored, and
again on the same through int8; both are scored on the first downstream dataset, and every seed is compared with itself.
In the first order, further:

* int8 when scoring only, and when training only;
* random noise of a thousandth on what trains the head, in several draws: what a difference looks like that means
  nothing.

Chunks stay those of the store, since the order of the batches depends on them. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.storage import Form, empty_like, unit_rows
from cluster.compose import compose
from cluster.overrides import read
from pipeline.evaluation.rows import read_rows
from pipeline.evaluation.scoring import Scorer
from pipeline.heads.base import Head
from pipeline.metrics.r_auroc import r_auroc
from pipeline.progress import Silent
from pipeline.representation_store import RepresentationStore
from pipeline.representation_store.encoding import as_stored
from pipeline.training.checkpoints import load_head
from pipeline.training.loop import train
from pipeline.training.summary import summarise
from pipeline.training.sweep import seed_folder
from stages.base import Experiment, make_stage

Array = NDArray[Any]
NOISE = 1e-3  # of each number
Change = Callable[[Array, int], Array]  # embedding of a unit → what trains the head


def heads_on(experiment: Experiment, source: RepresentationStore, change: Change) -> list[Head]:
    """The experiment's head, one a seed, trained on changed embeddings."""
    config = experiment.stages["train_head"]
    with tempfile.TemporaryDirectory() as name:
        form = Form(dtype="float32", compressor="none", level=1)
        store = empty_like(source, Path(name) / "store", form, same_chunks=True)
        for unit in source.counts():
            rows = unit_rows(source, unit)
            store.write_unit(unit, replace(rows, embedding_RVD=change(rows.embedding_RVD, unit)))
        folder, summary = Path(name) / "heads", summarise(store, None)
        train(store=store, head=experiment.head, config=config, summary=summary, folder=folder, progress=Silent())
        return [load_head(seed_folder(folder, seed)) for seed in config.seeds]


def scores(scorer: Scorer, heads: Sequence[Head]) -> Array:
    """R-AUROC of each head."""
    scored = [scorer.score(head) for head in heads]
    return np.array([r_auroc(item.uncertainty[item.primary], item.retrieval) for item in scored], dtype=float)


def noisy(draw: int) -> Change:
    """Noise of its own for each unit."""

    def change(embedding: Array, unit: int) -> Array:
        noise = np.random.default_rng([draw, unit]).standard_normal(embedding.shape, dtype=np.float32)
        return np.asarray(embedding * (1 + NOISE * noise), dtype=np.float32)

    return change


def compared(name: str, values_S: Array, reference_S: Array) -> dict[str, Any]:
    """The differences of the seeds, printed as a line of Markdown."""
    off_S = values_S - reference_S
    facts = {
        "mean": float(off_S.mean()),
        "standard_error": float(off_S.std(ddof=1) / len(off_S) ** 0.5),
        "largest": float(np.abs(off_S).max()),
        "r_auroc": values_S.tolist(),
    }
    print(f"| {name} | {facts['mean']:+.4f} | {facts['standard_error']:.4f} | {facts['largest']:.4f} |", flush=True)
    return facts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("settings", nargs="*", help="of the chain, as for submit: experiment=demo key=value …")
    parser.add_argument("--seeds", type=int, default=12, help="at least 2")
    parser.add_argument("--orders", default="0,1,2,3", help="of the batches")
    parser.add_argument("--noise", type=int, default=3, help="draws")
    options = parser.parse_args()
    done = compose(read(options.settings).overrides).experiment
    evaluate: Any = make_stage("evaluate", done)
    source = RepresentationStore.open(make_stage("cache", done).folder / "store")
    rows = read_rows(
        RepresentationStore.open(evaluate.evaluated.cache_of(next(iter(done.downstream))).folder / "store")
    )
    plain = Scorer(rows)
    quantised = Scorer(replace(rows, representation_ND=as_stored(rows.representation_ND, "int8")))
    found: dict[str, Any] = {}
    print("| what | mean difference | standard error | largest of a seed |\n|:--|--:|--:|--:|")
    means = []
    for place, order in enumerate(int(item) for item in options.orders.split(",")):
        seeds = f"train_head.seeds=[{','.join(map(str, range(options.seeds)))}]"
        overrides = [*read(options.settings).overrides, seeds, f"train_head.data_seed={order}"]
        experiment = compose(overrides).experiment
        whole = heads_on(experiment, source, lambda embedding, unit: embedding)
        rounded = heads_on(experiment, source, lambda embedding, unit: as_stored(embedding, "int8"))
        reference_S = scores(plain, whole)
        if not place:
            found["reference"] = {
                "mean": float(reference_S.mean()),
                "standard_deviation": float(reference_S.std(ddof=1)),
            }
            found["scored"] = compared("int8 when scoring", scores(quantised, whole), reference_S)
            found["trained"] = compared("int8 when training", scores(plain, rounded), reference_S)
            for draw in range(options.noise):
                values_S = scores(plain, heads_on(experiment, source, noisy(draw)))
                found[f"noise {draw}"] = compared(f"noise of {NOISE:g}, draw {draw}", values_S, reference_S)
        found[f"order {order}"] = compared(f"int8 throughout, order {order}", scores(quantised, rounded), reference_S)
        means.append(found[f"order {order}"]["mean"])
    error = float(np.std(means, ddof=1) / len(means) ** 0.5) if len(means) > 1 else None
    print(json.dumps({**found, "over_orders": {"mean": float(np.mean(means)), "standard_error": error}}))


if __name__ == "__main__":
    main()
