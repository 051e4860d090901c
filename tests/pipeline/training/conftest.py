"""Tiny stores whose task loss can be read off the representation."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from pipeline.representation_store import RepresentationStore, StoreLayout, UnitInfo, UnitRows


def make_store(
    path: Path,
    counts: list[int],
    *,
    views: int = 2,
    width: int = 16,
    chunk_rows: int = 32,
    scored: bool = True,
    labels: tuple[int, ...] = (0, 1, 2),
    classes: str = "abc",
) -> RepresentationStore:
    """Rows are normal; the task loss of each view is exp of its first value; labels are drawn from ``labels``."""
    layout = StoreLayout(
        units=tuple(UnitInfo(name=f"{unit:05d}.tar") for unit in range(len(counts))),
        rows=-(-max(counts) // chunk_rows) * chunk_rows,
        views=("center", *(f"random{view}" for view in range(views - 1))),
        width=width,
        view_params=("flip",),
        key_bytes=16,
        chunk_rows=chunk_rows,
    )
    store = RepresentationStore.create(path, layout, {"class_names": [*classes], "classifier": False})
    rng = np.random.default_rng(0)
    for unit, count in enumerate(counts):
        embedding_RVD = rng.normal(size=(count, views, width)).astype(np.float32)
        scores = {
            "task_loss": np.exp(embedding_RVD[:, :, 0]),
            "entropy": np.ones((count, views), dtype=np.float32),
            "top1_correct": np.ones((count, views), dtype=bool),
        }
        rows = UnitRows(
            embedding_RVD=embedding_RVD,
            view_params_RVP=np.zeros((count, views, 1), dtype=np.float32),
            label_R=np.array(labels, dtype=np.int32)[rng.integers(0, len(labels), count)],
            keys=[f"{unit}/{row}" for row in range(count)],
            scores=scores if scored else {},
        )
        store.write_unit(unit, rows)
    return store


@pytest.fixture
def store(tmp_path: Path) -> RepresentationStore:
    return make_store(tmp_path / "store", [120, 77, 100])


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., RepresentationStore]:
    return lambda counts, **options: make_store(tmp_path / "other", counts, **options)


def curves(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """Tag → (samples, value) of all points, as TensorBoard's own reader finds them."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    found.Reload()
    return {tag: [(event.step, event.value) for event in found.Scalars(tag)] for tag in found.Tags()["scalars"]}
