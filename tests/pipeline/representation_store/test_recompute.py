"""Rows that are made again: drawn evenly and repeatably, and told from wrong ones in every dtype."""

from __future__ import annotations

from typing import get_args

import numpy as np
import pytest

from pipeline.progress import Silent
from pipeline.representation_store import Dtype
from pipeline.representation_store.encoding import as_stored
from pipeline.representation_store.recompute import COMPUTE_TOLERANCE, allowed, draw_rows, recompute
from tests.pipeline.representation_store.conftest import make_layout


def test_drawn_rows_are_committed_ones_without_repetition_and_each_as_likely_as_another():
    counts = {0: 5, 3: 0, 7: 3}
    seen = np.zeros(8)
    for seed in range(800):
        drawn = draw_rows(counts, 2, seed)
        places = [{0: 0, 7: 5}[unit] + row for unit, rows in drawn.items() for row in rows]
        assert len(set(places)) == 2
        seen[places] += 1
    assert np.abs(seen - 200).max() < 5 * 12.3  # binomial, σ = 12.2
    assert draw_rows(counts, 2, 5) == draw_rows(counts, 2, 5)
    assert draw_rows(counts, 100, 0) == {0: [0, 1, 2, 3, 4], 7: [0, 1, 2]}
    assert draw_rows({}, 3, 0) == {}


@pytest.mark.parametrize("dtype", get_args(Dtype))
@pytest.mark.parametrize("compute", COMPUTE_TOLERANCE)
def test_rounding_is_never_more_than_allowed(dtype, compute):
    rng = np.random.default_rng(0)
    made = (rng.normal(size=(50, 3, 20)) * np.exp(rng.normal(0, 6, (50, 3, 1)))).astype(np.float32)
    made = made.clip(-6e4, 6e4)
    low_bits = made * (1 + rng.uniform(-0.9, 0.9, made.shape) * COMPUTE_TOLERANCE[compute]).astype(np.float32)
    assert (np.abs(as_stored(low_bits.clip(-6e4, 6e4), dtype) - made) <= allowed(made, dtype, compute) * 1.1).all()


@pytest.mark.parametrize("dtype", get_args(Dtype))
def test_a_wrong_row_is_named_and_right_ones_are_not(store_of, dtype):
    store, rows = store_of(make_layout(dtype=dtype), [40, 0, 7])
    wrong = {unit: unit_rows.embedding_RVD.copy() for unit, unit_rows in enumerate(rows)}
    wrong[2][3, 1] = rows[2].embedding_RVD[4, 1]
    wrong[0][5, 0, 2] = np.nan

    def found(embedding, **more):
        return recompute(
            store, lambda unit, chosen: embedding[unit][chosen], seed=0, compute="fp32", progress=Silent(), **more
        )

    right = {unit: unit_rows.embedding_RVD for unit, unit_rows in enumerate(rows)}
    assert found(right, rows=47) == []
    problems = found(wrong, rows=47)
    assert [problem.unit for problem in problems] == [0, 2]
    assert "row 5 (u0/5), view center" in problems[0].what
    assert "row 3 (u2/3), view random0" in problems[1].what
