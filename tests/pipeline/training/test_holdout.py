"""Which rows are held out: by key alone."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline.errors import UserError
from pipeline.training.holdout import held_out, training_rows


def keys(count, width=12):
    return np.array([f"n{i:06d}".encode() for i in range(count)], dtype=f"S{width}")


def test_the_share_is_met_and_larger_shares_hold_the_smaller_ones():
    small, large = held_out(keys(20_000), 0.05), held_out(keys(20_000), 0.2)
    assert small.mean() == pytest.approx(0.05, abs=5 * (0.05 * 0.95 / 20_000) ** 0.5)
    assert large.mean() == pytest.approx(0.2, abs=5 * (0.2 * 0.8 / 20_000) ** 0.5)
    assert not (small & ~large).any()


def test_a_key_is_judged_by_itself():
    whole = held_out(keys(500), 0.3)
    order = np.random.default_rng(0).permutation(500)
    np.testing.assert_array_equal(held_out(keys(500)[order], 0.3), whole[order])
    np.testing.assert_array_equal(held_out(keys(500, width=40), 0.3), whole)


def test_neighbouring_keys_are_not_held_out_together():
    chosen = held_out(keys(20_000), 0.5).astype(float)
    assert abs(np.corrcoef(chosen[1:], chosen[:-1])[0, 1]) < 0.04


def test_all_rows_train_without_a_share_and_an_empty_side_is_refused(store):
    assert training_rows(store, 0.0) is None
    assert training_rows(store, 0.3).sum() == (~held_out(store.load("key"), 0.3)).sum()
    with pytest.raises(UserError, match="holds out 0 of 297 rows"):
        training_rows(store, 1e-12)
