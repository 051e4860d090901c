"""The rows that a head is trained on, and the one pass over all of them that a head may want at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing

import numpy as np
from numpy.typing import NDArray

from pipeline.devices import device_named
from pipeline.heads.base import Head, Needs, RepresentationBatch
from pipeline.interruption import stop_if_asked
from pipeline.progress import Progress
from pipeline.representation_store import RepresentationStore
from pipeline.representation_store.reader import BatchReader, Reading
from pipeline.training.config import TrainingConfig
from pipeline.training.holdout import training_rows
from pipeline.training.members import seed_generators


def make_reader(
    store: RepresentationStore, needs: Needs, config: TrainingConfig
) -> tuple[BatchReader, NDArray[np.bool_] | None]:
    """A reader of the rows to train on, and which these are (None = all)."""
    keep = training_rows(store, config.validation_share)
    reading = Reading(
        batch_size=config.batch_size,
        seed=config.data_seed,
        window=config.window,
        memory=int(config.memory_gb * 1e9),
        threads=config.threads,
        device=device_named(config.device, "train_head.device"),
    )
    return BatchReader(store, needs, reading, keep=keep), keep


def fit(head: Head, store: RepresentationStore, config: TrainingConfig, progress: Progress) -> None:
    """All that is done with a head that needs no training."""
    finalise(head, lambda: make_reader(store, head.needs, config)[0], config, progress)


def finalise(head: Head, reader: Callable[[], BatchReader], config: TrainingConfig, progress: Progress) -> None:
    """Offer the head its pass over the store; ``reader`` is asked for only if the head takes it."""

    def batches() -> Iterator[RepresentationBatch]:
        made = reader()
        with closing(progress.bar("finalise", made.sampler.rows, "rows")) as bar:
            for batch in made.once():
                stop_if_asked()
                yield batch
                bar.advance(len(batch.row_B))

    device = device_named(config.device, "train_head.device")
    seed_generators(head.seed, device)
    head.to(device).eval().finalise(batches())
