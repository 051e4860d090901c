"""Stores of clustered rows, far from the origin and of a scale far from one, as embeddings are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from pipeline.representation_store import RepresentationStore, StoreLayout, UnitInfo, UnitRows, fit_rows

MakeClusters = Callable[..., RepresentationStore]


def write_clusters(
    path: Path,
    *,
    counts: tuple[int, ...],
    width: int = 16,
    classes: int = 6,
    noise: float = 2.0,
    relabel: Callable[[str, int], int] = lambda _, label: label,
    views: tuple[str, ...] = ("center", "random0"),
    chunk_rows: int | None = None,
    dtype: str = "float16",
) -> RepresentationStore:
    """Write a store; one row in eight is unlabelled, and its values fall off in scale along the width."""
    rows, chunk = fit_rows(max(counts), width, dtype)
    layout = StoreLayout(
        units=tuple(UnitInfo(name=f"{unit:05d}.tar") for unit in range(len(counts))),
        rows=rows if chunk_rows is None else -(-max(counts) // chunk_rows) * chunk_rows,
        views=views,
        width=width,
        view_params=("flip",),
        key_bytes=16,
        chunk_rows=chunk_rows or chunk,
        dtype=dtype,
    )
    run = {"class_names": [f"c{index}" for index in range(classes)], "classifier": False}
    store = RepresentationStore.create(path, layout, run)
    scale_D = np.arange(1, width + 1) ** -0.5
    centre_CD = np.random.default_rng(99).normal(size=(classes, width))
    for unit, count in enumerate(counts):
        rng = np.random.default_rng(unit)
        label_R = rng.integers(0, classes, count)
        noise_RVD = rng.normal(size=(count, len(views), width))
        embedding_RVD = 7 + 0.1 * scale_D * (centre_CD[label_R][:, None] + noise * noise_RVD)
        keys = [f"u{unit}/{row}" for row in range(count)]
        named = [-1 if row % 8 == 0 else relabel(k, v) for row, (k, v) in enumerate(zip(keys, label_R, strict=True))]
        store.write_unit(
            unit,
            UnitRows(
                embedding_RVD=embedding_RVD.astype(np.float32),
                view_params_RVP=np.zeros((count, len(views), 1), np.float32),
                label_R=np.array(named, np.int32),
                keys=keys,
                scores={},
            ),
        )
    return store


@pytest.fixture
def make_clusters(tmp_path: Path) -> MakeClusters:
    def make(name: str = "clusters", **values: object) -> RepresentationStore:
        return write_clusters(tmp_path / name, **values)  # type: ignore[arg-type]

    return make
