"""Small stores with made-up rows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.files import sha256_file
from pipeline.representation_store import Dtype, RepresentationStore, StoreLayout, UnitInfo, UnitRows, fit_rows


def make_layout(
    *, units: int = 3, capacity: int = 40, views: int = 2, width: int = 16, dtype: Dtype = "float16", **more: Any
) -> StoreLayout:
    rows, chunk_rows = fit_rows(capacity, width, dtype)
    return StoreLayout(
        units=tuple(UnitInfo(name=f"{unit:05d}.tar") for unit in range(units)),
        rows=rows,
        views=("center", *(f"random{view}" for view in range(views - 1))),
        width=width,
        view_params=("crop_left", "flip"),
        key_bytes=12,
        chunk_rows=chunk_rows,
        dtype=dtype,
        **more,
    )


def make_rows(layout: StoreLayout, count: int, seed: int) -> UnitRows:
    rng = np.random.default_rng(seed)
    views = len(layout.views)
    label_R = rng.integers(-1, 3, count).astype(np.int32)
    label_R[:1] = 2
    correct_RV = rng.uniform(size=(count, views)) < 0.5
    correct_RV[:1] = True  # a region of nothing but fill has no object
    return UnitRows(
        embedding_RVD=rng.normal(size=(count, views, layout.width)).astype(np.float32),
        view_params_RVP=rng.uniform(size=(count, views, len(layout.view_params))).astype(np.float32),
        label_R=label_R,
        keys=[f"u{seed}/{row}" for row in range(count)],
        scores={
            "task_loss": rng.exponential(size=(count, views)).astype(np.float32),
            "entropy": rng.uniform(size=(count, views)).astype(np.float32),
            "top1_correct": correct_RV,
        },
    )


def tree(folder: Path) -> dict[str, str]:
    """Relative path → sha256 of every file."""
    return {str(p.relative_to(folder)): sha256_file(p) for p in sorted(folder.rglob("*")) if p.is_file()}


@pytest.fixture
def layout() -> StoreLayout:
    return make_layout()


@pytest.fixture
def store_of(tmp_path: Path) -> Callable[[StoreLayout, list[int]], tuple[RepresentationStore, list[UnitRows]]]:
    """A store with the given row counts, and what was put in."""

    def make(layout: StoreLayout, counts: list[int]) -> tuple[RepresentationStore, list[UnitRows]]:
        store = RepresentationStore.create(tmp_path / "store", layout, {"class_names": ["a", "b", "c"]})
        rows = [make_rows(layout, count, seed) for seed, count in enumerate(counts)]
        for unit, unit_rows in enumerate(rows):
            store.write_unit(unit, unit_rows)
        return store, rows

    return make
