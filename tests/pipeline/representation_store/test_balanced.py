"""Class-balanced batches: what each of them holds, how often each class and row is seen, and that the order is pure."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.errors import UserError
from pipeline.heads.base import Needs
from pipeline.representation_store.balanced import ClassBalance
from pipeline.representation_store.blocks import blocks_of
from pipeline.representation_store.reader import BatchReader, Reading
from pipeline.representation_store.sampler import Sampler
from tests.pipeline.representation_store.conftest import make_layout


def make(counts, label, per_class, *, batch=12, window=40, seed=0, chunk=8):
    blocks = blocks_of(dict(enumerate(counts)), chunk)
    balance = ClassBalance(label=np.asarray(label, dtype=np.int32), per_class=per_class)
    return Sampler(blocks, cached_views=2, views=1, batch_size=batch, window=window, seed=seed, grouping=balance)


@st.composite
def cases(draw):
    """Counts of units, a label for each row, rows of a group; two classes at least have enough rows."""
    counts = draw(st.lists(st.integers(0, 25), min_size=1, max_size=5))
    per_class, classes = draw(st.integers(1, 4)), draw(st.integers(2, 7))
    rng = np.random.default_rng(draw(st.integers(0, 2**20)))
    extra = [per_class * 2]
    label = rng.integers(-1, classes, sum(counts) + extra[0])
    label[:per_class], label[per_class : extra[0]] = 0, 1
    return [*counts, *extra], label, per_class


@settings(max_examples=60)
@given(case=cases(), seed=st.integers(0, 2**40))
def test_groups_are_of_one_class_and_classes_and_rows_come_equally_often(case, seed):
    counts, label, per_class = case
    sampler = make(counts, label, per_class, batch=per_class * 3, window=10**6, seed=seed)
    window = sampler.window(0)
    rows_GK = window.row_N.reshape(-1, per_class)
    assert len(rows_GK) == len(label) // per_class
    labels_GK = label[rows_GK]
    assert (labels_GK == labels_GK[:, :1]).all()
    assert (labels_GK >= 0).all()
    assert all(len(set(group)) == per_class for group in rows_GK.tolist())
    enough = [c for c in range(7) if (label == c).sum() >= per_class]
    groups = np.array([(labels_GK[:, 0] == c).sum() for c in enough])
    assert groups.sum() == len(rows_GK)
    assert groups.max() - groups.min() <= 1
    for c in enough:
        seen = np.bincount(window.row_N, minlength=len(label))[label == c]
        assert seen.max() - seen.min() <= 1
    turns = labels_GK[: len(rows_GK) // len(enough) * len(enough), 0].reshape(-1, len(enough))
    assert (np.sort(turns, axis=1) == enough).all()  # none comes again before all others came


@settings(max_examples=30)
@given(case=cases(), window=st.integers(30, 200), seed=st.integers(0, 2**40), steps=st.permutations(range(9)))
def test_batches_are_a_function_of_seed_and_step_and_follow_one_another(case, window, seed, steps):
    counts, label, per_class = case
    label = np.arange(sum(counts)) % 2  # so that every window has enough of both
    whole = make(counts, label, per_class, batch=per_class * 4, window=window, seed=seed)
    try:
        forward = [whole.batch(step) for step in range(9)]
    except UserError:
        return  # a window of one small block
    other = make(counts, label, per_class, batch=per_class * 4, window=window, seed=seed)
    for step in steps:
        for left, right in zip(other.batch(step), forward[step], strict=True):
            np.testing.assert_array_equal(left, right)
        groups = label[forward[step][0]].reshape(4, per_class)
        assert (groups == groups[:, :1]).all()
    stream = np.concatenate([rows for rows, _ in forward])
    spans = list(whole.spans(0, len(stream)))
    np.testing.assert_array_equal(
        stream, np.concatenate([whole.window(span.window).row_N[span.start : span.stop] for span in spans])
    )


def test_over_epochs_all_rows_of_all_classes_come_whatever_their_sizes():
    label = np.random.default_rng(0).permutation(np.repeat([0, 1, 2], [60, 30, 6]))
    sampler = make([96], label, 2, window=96)
    rows = np.concatenate([sampler.batch(step)[0] for step in range(8 * 100)])  # 100 epochs
    seen = np.bincount(rows, minlength=96)
    assert seen.min() > 0
    np.testing.assert_allclose([seen[label == c].sum() / len(rows) for c in range(3)], 1 / 3, atol=0.05)
    small, large = seen[label == 2].mean(), seen[label == 0].mean()
    assert 6 < small / large < 14  # ten times as rare, and so seen ten times as often


def test_windows_are_even_and_within_their_bound():
    sampler = make([64, 8], np.arange(72) % 3, 2, window=24)
    sizes = np.diff(sampler.cuts)
    assert sampler.blocks_per_window == 3
    assert (sizes.max(), sizes.min()) == (3, 3)
    sampler = make([64, 16], np.arange(80) % 3, 2, window=24)
    assert sorted(np.diff(sampler.cuts)) == [2, 2, 3, 3]


@pytest.fixture
def store(store_of):
    layout = replace(make_layout(units=4, views=3), chunk_rows=8)
    return store_of(layout, [40, 0, 13, 21])[0]


NEEDS = Needs(labels=True, sampling="class_balanced", rows_per_class=3)


@pytest.mark.parametrize("keep", [None, 3])
def test_streamed_and_resident_batches_and_parts_of_them_are_the_same(store, keep):
    mask = None if keep is None else np.arange(74) % keep != 0
    reading = Reading(batch_size=12, window=48, seed=5)
    resident = BatchReader(store, NEEDS, reading, keep=mask)
    streamed = BatchReader(store, NEEDS, replace(reading, memory=0), keep=mask)
    assert (resident.resident, streamed.resident) == (True, False)
    embedding, label = store.representations(), store.load("label")
    whole = list(resident.batches(0, 15))
    for step, (a, b) in enumerate(zip(whole, streamed.batches(0, 15), strict=True)):
        rows, drawn = resident.sampler.batch(step)
        for batch in (a, b):
            np.testing.assert_array_equal(batch.row_B.numpy(), rows)
            np.testing.assert_array_equal(batch.representation_BVD.numpy(), embedding[rows[:, None], drawn])
            np.testing.assert_array_equal(batch.label_B.numpy(), label[rows])
        assert mask is None or mask[rows].all()
    for part in (slice(0, 6), slice(6, 12)):  # as two processes read them, from a step on
        for left, right in zip(streamed.batches(4, 9, part), whole[4:9], strict=True):
            assert torch.equal(left.row_B, right.row_B[part])


@pytest.mark.parametrize("memory", [0, 1 << 30])
def test_one_pass_gives_every_row_once_all_the_same(store, memory):
    reader = BatchReader(store, NEEDS, Reading(batch_size=12, window=48, memory=memory))
    next(reader.batches(0, 1))
    rows = torch.cat([batch.row_B for batch in reader.once()])
    assert sorted(rows.tolist()) == list(range(74))


def test_labels_are_not_in_batches_that_do_not_want_them(store):
    batch = next(BatchReader(store, replace(NEEDS, labels=False), Reading(batch_size=12)).batches(0, 1))
    assert batch.label_B is None


def test_what_cannot_be_balanced_is_refused(store):
    with pytest.raises(UserError, match="batch_size: 10 is no multiple of 3"):
        BatchReader(store, NEEDS, Reading(batch_size=10))
    with pytest.raises(UserError, match=r"40 rows of each of several classes, but 0 of the \d classes among 74 rows"):
        next(BatchReader(store, replace(NEEDS, rows_per_class=40), Reading(batch_size=40)).batches(0, 1))
    with pytest.raises(UserError, match="2 rows to train on, but this head wants 3 of a class"):
        BatchReader(store, NEEDS, Reading(batch_size=3), keep=np.arange(74) < 2)
