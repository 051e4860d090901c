"""The order of rows: what it covers, what it depends on, how well it mixes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.errors import UserError
from pipeline.representation_store.blocks import blocks_of
from pipeline.representation_store.draws import Draws
from pipeline.representation_store.sampler import Sampler

GOLDEN_ROWS = [4, 1, 18, 11, 15, 0, 6, 9, 17, 27, 57, 34, 58, 25, 24, 26]
GOLDEN_VIEWS = [2, 2, 0, 0, 0, 2, 2, 0, 0, 1, 0, 1, 0, 1, 1, 1]


def make_sampler(counts, *, chunk=8, keep=None, cached=3, views=1, batch=16, window=32, seed=0):
    blocks = blocks_of(dict(enumerate(counts)), chunk, keep)
    return Sampler(blocks, cached_views=cached, views=views, batch_size=batch, window=window, seed=seed)


def stream(sampler, start, stop):
    """(row, views) of places start:stop, gathered window by window."""
    parts = [(sampler.window(s.window), s) for s in sampler.spans(start, stop)]
    rows = np.concatenate([w.row_N[s.start : s.stop] for w, s in parts])
    views = np.concatenate([w.view_NV[s.start : s.stop] for w, s in parts])
    return rows, views


def test_blocks_of_units_by_hand():
    blocks = blocks_of({0: 5, 2: 0, 7: 3}, 4)
    assert blocks.unit_K.tolist() == [0, 0, 7]
    assert blocks.start_K.tolist() == [0, 4, 0]
    assert blocks.stop_K.tolist() == [4, 5, 3]
    assert blocks.first_K.tolist() == [0, 4, 5]
    assert (blocks.high_K - blocks.low_K).tolist() == [4, 1, 3]


def test_rows_left_out_leave_their_empty_blocks_out():
    keep = np.array([1, 0, 0, 1, 0, 0, 1, 1], dtype=bool)
    blocks = blocks_of({0: 5, 7: 3}, 4, keep)
    assert blocks.unit_K.tolist() == [0, 7]
    assert blocks.rows.tolist() == [0, 3, 6, 7]
    assert (blocks.low_K.tolist(), blocks.high_K.tolist()) == ([0, 2], [2, 4])


@settings(max_examples=40, deadline=None)
@given(
    counts=st.lists(st.integers(0, 30), min_size=1, max_size=6).filter(any),
    cached=st.integers(1, 4),
    window=st.integers(1, 100),
    seed=st.integers(0, 2**63),
)
def test_every_row_once_an_epoch_and_every_view_once_in_as_many_epochs_as_views(counts, cached, window, seed):
    sampler = make_sampler(counts, cached=cached, window=window, seed=seed)
    total = sum(counts)
    seen = []
    for epoch in range(cached):
        rows, views = stream(sampler, epoch * total, (epoch + 1) * total)
        assert sorted(rows) == list(range(total))
        seen += zip(rows.tolist(), views[:, 0].tolist(), strict=True)
    assert len(set(seen)) == total * cached == len(seen)


@pytest.mark.parametrize("views", [2, 3])
def test_the_views_of_a_row_differ_and_all_come_equally_often(views):
    sampler = make_sampler([20, 9], cached=3, views=views)
    rows, drawn = stream(sampler, 0, 29 * 3)
    assert drawn.shape == (87, views)
    assert all(len(set(row)) == views for row in drawn.tolist())
    counted = np.zeros((29, 3), dtype=int)
    np.add.at(counted, (rows[:, None], drawn), 1)
    assert (counted == views).all()


def test_a_batch_is_a_function_of_seed_and_step_alone():
    counts = [30, 11, 25]
    forward = [make_sampler(counts).batch(step) for step in range(12)]
    jumping = make_sampler(counts)
    for step in (11, 3, 7, 0):
        for left, right in zip(jumping.batch(step), forward[step], strict=True):
            np.testing.assert_array_equal(left, right)
    assert not np.array_equal(make_sampler(counts, seed=1).batch(0)[0], forward[0][0])
    assert len(forward[4][0]) == 16  # the batch across the epoch's end is as large as any


def test_batches_follow_one_another_in_the_stream():
    sampler = make_sampler([30, 11, 25])
    rows = np.concatenate([sampler.batch(step)[0] for step in range(9)])
    np.testing.assert_array_equal(rows, stream(sampler, 0, 9 * 16)[0])


def test_a_window_larger_than_the_store_is_a_full_permutation():
    sampler = make_sampler([100] * 8, chunk=50, window=10**6)
    assert sampler.windows_per_epoch == 1
    rows, _ = stream(sampler, 0, 800)
    units = rows.reshape(8, 100) // 100
    # of 100 rows drawn without replacement from 8 units of 100, 12.5 ± 3.1 are of one unit
    found = np.stack([np.bincount(part, minlength=8) for part in units])
    assert found.min() > 12.5 - 4.5 * 3.1
    assert found.max() < 12.5 + 4.5 * 3.1


def test_a_batch_mixes_the_blocks_of_its_window():
    sampler = make_sampler([64] * 64, chunk=8, batch=64, window=256)
    units = [len(set((sampler.batch(step)[0] // 64).tolist())) for step in range(64)]
    assert sampler.blocks_per_window == 32
    assert min(units) >= 15  # of the 32 blocks of a window, of 64 units
    assert len(set((sampler.batch(0)[0] // 64).tolist())) <= 32


def test_windows_hold_no_more_than_they_say():
    sampler = make_sampler([13, 8, 30, 7], chunk=8, window=20)
    assert sampler.blocks_per_window == 2
    for index in range(3 * sampler.windows_per_epoch):
        window = sampler.window(index)
        assert len(window.row_N) <= 16
        assert sorted(window.order_N) == list(range(len(window.row_N)))


def test_laid_down_places_are_the_rows_of_the_blocks():
    keep = np.arange(58) % 3 != 0
    sampler = make_sampler([13, 8, 30, 7], chunk=8, window=20, keep=keep)
    blocks = sampler.blocks
    for index in range(sampler.windows_per_epoch):
        window = sampler.window(index)
        laid = np.concatenate([blocks.rows[blocks.low_K[b] : blocks.high_K[b]] for b in window.block_K])
        np.testing.assert_array_equal(laid[window.order_N], window.row_N)
        for k, block in enumerate(window.block_K):
            assert laid[window.offset_K[k]] == blocks.rows[blocks.low_K[block]]


def test_the_order_is_the_one_it_has_always_been():
    """A checkpoint of an older version goes on in the same order: these numbers never change."""
    rows, views = make_sampler([30, 11, 25]).batch(1)
    assert rows.tolist() == GOLDEN_ROWS
    assert views[:, 0].tolist() == GOLDEN_VIEWS


def test_permutations_are_uniform():
    drawn = Draws(seed=3, purpose=0).permutations(6000, 3)
    _, counts = np.unique(drawn, axis=0, return_counts=True)
    assert len(counts) == 6
    assert counts.min() > 1000 - 5 * 29  # binomial, σ = 29
    assert counts.max() < 1000 + 5 * 29


def test_too_few_views_and_no_rows_are_refused():
    with pytest.raises(UserError, match="wants 4 different views of each row, but the store holds 3"):
        make_sampler([5], views=4)
    with pytest.raises(UserError, match="no rows to train on"):
        make_sampler([0, 0])
