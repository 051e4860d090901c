"""Triplets: what each group holds, how often each row is an anchor, and that the order is pure; then mining."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.errors import UserError
from pipeline.heads.base import Needs
from pipeline.representation_store.blocks import blocks_of
from pipeline.representation_store.reader import BatchReader, Reading
from pipeline.representation_store.sampler import Sampler
from pipeline.representation_store.triplets import Triplets
from tests.pipeline.representation_store.conftest import make_layout


def make(counts, label, negatives, *, groups=4, window=10**6, seed=0, chunk=8, pool=0):
    blocks = blocks_of(dict(enumerate(counts)), chunk)
    triplets = Triplets.of(np.asarray(label, dtype=np.int32), negatives=negatives, pool=pool)
    batch = groups * (2 + negatives)
    return Sampler(blocks, cached_views=2, views=1, batch_size=batch, window=window, seed=seed, grouping=triplets)


@st.composite
def cases(draw):
    """Counts of units, a label for each row, negatives of an anchor; enough rows beside each class."""
    negatives, classes = draw(st.integers(1, 4)), draw(st.integers(1, 7))
    counts = draw(st.lists(st.integers(0, 25), min_size=1, max_size=5))
    rng = np.random.default_rng(draw(st.integers(0, 2**20)))
    size = negatives + 1
    label = np.concatenate([rng.integers(-1, classes, sum(counts)), np.repeat([classes, classes + 1], size)])
    return [*counts, 2 * size], label, negatives


def anchors_of(label):
    """Rows that have a label which another row has too, found one by one."""
    return [row for row, own in enumerate(label) if own >= 0 and (np.asarray(label) == own).sum() > 1]


@settings(max_examples=60)
@given(case=cases(), seed=st.integers(0, 2**40))
def test_positives_are_of_the_class_negatives_of_others_and_every_row_is_an_anchor_once(case, seed):
    counts, label, negatives = case
    sampler = make(counts, label, negatives, seed=seed)
    assert sampler.windows_per_epoch == 1
    for epoch in range(2):
        window = sampler.window(epoch)
        assert window.seen == len(window.row_N) == sampler.places
        rows = window.row_N.reshape(-1, 2 + negatives)
        labels = label[rows]
        assert (labels >= 0).all()
        assert (labels[:, 0] == labels[:, 1]).all()
        assert (rows[:, 0] != rows[:, 1]).all()
        assert (labels[:, :1] != labels[:, 2:]).all()
        assert all(len(set(group)) == 2 + negatives for group in rows.tolist())
        assert sorted(rows[:, 0]) == anchors_of(label)
    unlabelled, lone = int((label < 0).sum()), int((label >= 0).sum()) - len(anchors_of(label))
    assert (sampler.grouping.unlabelled, sampler.grouping.lone) == (unlabelled, lone)
    assert (f"{lone:,} are the only one of their class" in sampler.grouping.left_out) == (lone > 0)
    assert (f"{unlabelled:,} have no label" in sampler.grouping.left_out) == (unlabelled > 0)


@settings(max_examples=30)
@given(case=cases(), window=st.integers(40, 120), seed=st.integers(0, 2**40), steps=st.permutations(range(9)))
def test_batches_are_a_function_of_seed_and_step_and_follow_one_another(case, window, seed, steps):
    counts, label, negatives = case
    label = np.where(label < 0, -1, np.arange(len(label)) % 3)  # so that windows have enough of each
    try:
        whole = make(counts, label, negatives, window=window, seed=seed, groups=3)
        forward = [whole.batch(step) for step in range(9)]
    except UserError:
        return  # a window of one small block
    other = make(counts, label, negatives, window=window, seed=seed, groups=3)
    for step in steps:
        for left, right in zip(other.batch(step), forward[step], strict=True):
            np.testing.assert_array_equal(left, right)
        labels = label[forward[step][0]].reshape(3, -1)
        assert (labels[:, 0] == labels[:, 1]).all()
        assert (labels[:, :1] != labels[:, 2:]).all()
    spans = list(whole.spans(0, 9 * whole.batch_size))
    parts = [whole.window(span.window).row_N[span.start : span.stop] for span in spans]
    np.testing.assert_array_equal(np.concatenate([rows for rows, _ in forward]), np.concatenate(parts))


def test_in_small_windows_every_row_with_a_positive_there_is_an_anchor_as_often_as_the_others():
    label = np.arange(96) % 3
    label[:4] = [7, 8, 7, 8]  # two classes of two rows, in one block
    sampler = make([48, 48], label, 2, window=24)
    assert sampler.windows_per_epoch == 4
    for index in range(8):
        window = sampler.window(index)
        seen = np.bincount(window.row_N.reshape(-1, 4)[:, 0], minlength=96)
        assert sorted(seen[seen > 0]) == [1] * 24
    rows = np.concatenate([sampler.window(index).row_N[::4] for index in range(4 * 50)])
    assert (np.bincount(rows, minlength=96) == 50).all()


def test_an_anchor_without_a_positive_in_its_window_gives_its_turn_away():
    label = np.arange(16) % 2
    label[[0, 15]] = 5  # a class of two rows that never meet, in windows of one block
    sampler = make([8, 8], label, 2, window=8)
    for index in range(6):
        anchors = sampler.window(index).row_N[::4]
        assert len(anchors) == 8
        assert not {0, 15} & set(anchors.tolist())
        assert sorted(np.bincount(anchors)[np.bincount(anchors) > 0]) == [1] * 6 + [2]


def test_positives_and_negatives_are_all_alike():
    label = np.repeat([0, 1, 2], [3, 4, 2])
    sampler = make([9], label, 2, groups=9)
    rows = np.concatenate([sampler.batch(step)[0].reshape(-1, 4) for step in range(1500)])
    for anchor in range(9):
        own = rows[rows[:, 0] == anchor]
        mates = [row for row in range(9) if label[row] == label[anchor] and row != anchor]
        others = [row for row in range(9) if label[row] != label[anchor]]
        for column, valid, share in ((own[:, 1], mates, 1 / len(mates)), (own[:, 2:], others, 2 / len(others))):
            found = np.bincount(column.reshape(-1), minlength=9)[valid]
            assert found.sum() == column.size
            bound = 5 * np.sqrt(1500 * share * (1 - share)) + 1e-9
            assert np.abs(found - 1500 * share).max() <= bound


@pytest.mark.parametrize(
    ("label", "said"),
    [
        ([0] * 9 + [-1], r"0.*|but 1 of the classes of the 10 rows to train on has two rows \(0 rows are .* 1 have no"),
        ([0, 0, 1, 2], r"but 1 of the classes of the 4 rows to train on has two rows \(2 rows are the only one"),
        ([-1] * 5, r"but 0 of the classes of the 5 rows to train on have two rows"),
    ],
)
def test_a_store_without_two_classes_of_two_rows_is_refused(label, said):
    with pytest.raises(UserError, match=said):
        make([len(label)], label, 1)


def test_windows_that_are_too_poor_and_batches_that_tear_groups_are_refused():
    sorted_label = np.repeat([0, 1], 16)
    with pytest.raises(UserError, match=r"3 rows of other classes for each anchor, but one has 0 among the 8 rows"):
        make([32], sorted_label, 3, window=8).batch(0)
    with pytest.raises(UserError, match=r"two rows of a class, but no class has two among the 2 rows"):
        make([2, 2], [0, 1, 1, 0], 1, window=2).batch(0)
    with pytest.raises(UserError, match=r"batch_size: 2048 is no multiple of 7, .* Take 2044 or 2051\."):
        Sampler(
            blocks_of({0: 32}, 8),
            cached_views=1,
            views=1,
            batch_size=2048,
            window=32,
            seed=0,
            grouping=Triplets.of(sorted_label.astype(np.int32), negatives=5, pool=0),
        )


# -- what is read


@pytest.fixture
def store(store_of, request):
    layout = replace(
        make_layout(units=4, capacity=96, views=3, dtype=getattr(request, "param", "float16")), chunk_rows=8
    )
    return store_of(layout, [40, 0, 93, 61])[0]


def needs_of(mining, pool=30):
    return Needs(labels=True, task_loss=True, sampling="triplets", negatives=3, mining=mining, pool=pool, together=5)


def held(batch):
    """What a batch holds: the fields that its head needs."""
    return {name: value for name, value in vars(batch).items() if value is not None}


@pytest.mark.parametrize(
    ("mining", "store", "keep"),
    [("random", "float16", None), ("representation", "float16", None), ("representation", "int8", 3)],
    indirect=["store"],
)
def test_streamed_and_resident_batches_and_parts_of_them_are_the_same(store, mining, keep):
    mask = None if keep is None else np.arange(194) % keep != 0
    reading = Reading(batch_size=35, window=80, seed=5)
    resident = BatchReader(store, needs_of(mining), reading, keep=mask)
    streamed = BatchReader(store, needs_of(mining), replace(reading, memory=0), keep=mask)
    assert (resident.resident, streamed.resident) == (True, False)
    embedding, label, loss = store.representations(), store.load("label"), store.load("task_loss")
    whole = list(resident.batches(0, 12))
    for a, b in zip(whole, streamed.batches(0, 12), strict=True):
        rows = a.row_B.numpy()
        for name, value in held(a).items():
            assert torch.equal(value, getattr(b, name)), name
        views = [
            (embedding[row] == vector.numpy()).all(1)
            for row, vector in zip(rows, a.representation_BVD[:, 0], strict=True)
        ]
        assert all(found.sum() == 1 for found in views)
        drawn = np.argmax(views, axis=1)
        np.testing.assert_array_equal(a.task_loss_BV[:, 0].numpy(), loss[rows, drawn])
        np.testing.assert_array_equal(a.label_B.numpy(), label[rows])
        groups = label[rows].reshape(-1, 5)
        assert (groups[:, 0] == groups[:, 1]).all()
        assert (groups[:, :1] != groups[:, 2:]).all()
        assert mask is None or mask[rows].all()
    for part in (slice(0, 5), slice(5, 25), slice(25, 35)):  # as three processes read them, from a step on
        for left, right in zip(streamed.batches(4, 9, part), whole[4:9], strict=True):
            for name, value in held(left).items():
                assert torch.equal(value, getattr(right, name)[part]), name


def test_hard_negatives_are_the_nearest_of_the_pool_and_anchors_and_positives_are_as_drawn(store):
    """Against float64 and a full sort."""
    needs = needs_of("representation")
    reading = Reading(batch_size=35, window=80)
    reader, drawn = BatchReader(store, needs, reading), BatchReader(store, replace(needs, mining="random"), reading)
    sampler, label = reader.sampler, store.load("label")
    embedding = store.representations().astype(np.float64)
    embedding /= np.linalg.norm(embedding, axis=-1, keepdims=True)
    changed = 0
    for step, (batch, plain) in enumerate(zip(reader.batches(0, 30), drawn.batches(0, 30), strict=True)):
        rows, before = batch.row_B.numpy().reshape(-1, 5), plain.row_B.numpy().reshape(-1, 5)
        np.testing.assert_array_equal(rows[:, :2], before[:, :2])
        changed += (rows[:, 2:] != before[:, 2:]).any(1).sum()
        spans = [span for span in sampler.spans(step * 35, step * 35 + 35) for _ in range(span.stop - span.start)][::5]
        view_B = sampler.batch(step)[1][:, 0].reshape(-1, 5)[:, 0]
        for group, span, view in zip(rows, spans, view_B, strict=True):
            window = sampler.window(span.window)
            pool, views = window.row_N[window.seen :], window.view_NV[window.seen :, 0]
            assert len(pool) == len(set(pool.tolist())) == 30
            cosine = embedding[pool, views] @ embedding[group[0], view]
            cosine[label[pool] == label[group[0]]] = -np.inf
            np.testing.assert_array_equal(group[2:], pool[np.argsort(-cosine)[:3]])
    assert changed > 100


def test_a_pool_with_too_few_of_other_classes_leaves_drawn_negatives(store):
    for pool in (1, 2):
        reader = BatchReader(store, needs_of("representation", pool=pool), Reading(batch_size=35, window=80))
        plain = BatchReader(store, needs_of("random"), Reading(batch_size=35, window=80))
        label = store.load("label")
        for mined, drawn in zip(reader.batches(0, 20), plain.batches(0, 20), strict=True):
            rows = mined.row_B.numpy().reshape(-1, 5)
            assert (label[rows[:, :1]] != label[rows[:, 2:]]).all()
            np.testing.assert_array_equal(rows[:, 2 + pool :], drawn.row_B.numpy().reshape(-1, 5)[:, 2 + pool :])


@pytest.mark.parametrize("memory", [0, 1 << 30])
def test_one_pass_gives_every_row_once_all_the_same(store, memory):
    reader = BatchReader(store, needs_of("representation"), Reading(batch_size=35, window=80, memory=memory))
    next(reader.batches(0, 1))
    rows = torch.cat([batch.row_B for batch in reader.once()])
    assert sorted(rows.tolist()) == list(range(194))
