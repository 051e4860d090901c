"""Batches: the same from memory and streamed, and equal to what the store holds."""

from __future__ import annotations

import threading
from dataclasses import replace

import numpy as np
import pytest
import torch

from pipeline.errors import UserError
from pipeline.heads.base import Needs
from pipeline.representation_store.reader import BatchReader, Reading
from pipeline.representation_store.sources import Streamed
from tests.pipeline.representation_store.conftest import make_layout, make_rows

ALL = Needs(labels=True, task_loss=True)


@pytest.fixture
def store(store_of, request):
    layout = replace(make_layout(units=4, views=3, dtype=getattr(request, "param", "float16")), chunk_rows=8)
    return store_of(layout, [40, 0, 13, 21])[0]


def stored_as(*dtypes):
    return pytest.mark.parametrize("store", dtypes, indirect=True)


def everything(reader, start=0, stop=12):
    return list(reader.batches(start, stop))


def same(left, right):
    for name in ("representation_BVD", "row_B", "task_loss_BV", "label_B"):
        a, b = getattr(left, name), getattr(right, name)
        assert (a is None) == (b is None)
        if a is not None:
            assert a.dtype == b.dtype
            assert torch.equal(a, b), name


@pytest.mark.parametrize("views", [1, 2])
@pytest.mark.parametrize("keep", [None, 3])
@pytest.mark.parametrize(
    ("window", "store"), [(8, "float16"), (24, "float16"), (1000, "float16"), (24, "int8")], indirect=["store"]
)
def test_streamed_and_resident_batches_are_what_the_store_holds(store, views, keep, window):
    needs = Needs(labels=True, task_loss=True, views=views)
    mask = None if keep is None else np.arange(74) % keep != 0
    reading = Reading(batch_size=10, window=window, seed=5)
    resident = BatchReader(store, needs, reading, keep=mask)
    streamed = BatchReader(store, needs, replace(reading, memory=0, threads=3), keep=mask)
    assert resident.resident
    assert not streamed.resident
    embedding, task_loss, label = store.representations(), store.load("task_loss"), store.load("label")
    for step, (a, b) in enumerate(zip(everything(resident), everything(streamed), strict=True)):
        same(a, b)
        rows, drawn = resident.sampler.batch(step)
        np.testing.assert_array_equal(a.row_B.numpy(), rows)
        np.testing.assert_array_equal(a.representation_BVD.numpy(), embedding[rows[:, None], drawn])
        np.testing.assert_array_equal(a.task_loss_BV.numpy(), task_loss[rows[:, None], drawn])
        np.testing.assert_array_equal(a.label_B.numpy(), label[rows])


@pytest.mark.parametrize("memory", [0, 1 << 30])
def test_reading_goes_on_anywhere(store, memory):
    reader = BatchReader(store, ALL, Reading(batch_size=10, window=16, memory=memory))
    for left, right in zip(everything(reader, 7, 12), everything(reader, 0, 12)[7:], strict=True):
        same(left, right)


@pytest.mark.parametrize("memory", [0, 1 << 30])
def test_one_pass_gives_every_row_once(store, memory):
    reader = BatchReader(store, ALL, Reading(batch_size=10, window=16, memory=memory))
    batches = list(reader.once())
    assert [len(batch.row_B) for batch in batches] == [10] * 7 + [4]
    assert sorted(torch.cat([batch.row_B for batch in batches]).tolist()) == list(range(74))
    assert [len(batch.row_B) for batch in reader.once(25)] == [10, 10, 5]


@stored_as("float16", "int8")
def test_only_what_is_needed_is_read(store, monkeypatch):
    read = []
    original = type(store).read
    monkeypatch.setattr(
        type(store),
        "read",
        lambda self, array, *args, **more: (read.append(array), original(self, array, *args, **more))[1],
    )
    batch = everything(BatchReader(store, Needs(), Reading(batch_size=4)), 0, 1)[0]
    assert set(read) == set(store.layout.representation)
    assert batch.task_loss_BV is None
    assert batch.label_B is None


@stored_as("float16", "int8")
def test_streaming_reads_only_the_views_it_uses_and_holds_two_windows(store, monkeypatch):
    read = []
    original = type(store).read

    def watched(self, array, unit, *, view=None, start=0, stop=None):
        value = original(self, array, unit, view=view, start=start, stop=stop)
        read.append((array, value.nbytes))
        return value

    monkeypatch.setattr(type(store), "read", watched)
    reader = BatchReader(store, Needs(), Reading(batch_size=10, window=16, memory=0))
    source = Streamed(store, reader.arrays, reader.sampler, 1, torch.device("cpu"))
    row_bytes = store.layout.width * 2 if store.layout.dtype == "float16" else store.layout.width + 4
    assert sum(held.nbytes for buffers in source.free for held in buffers.values()) == 2 * 16 * row_bytes
    for span in reader.sampler.spans(0, 74):
        source.take(span)
    source.close()
    used = sum(size for _, size in read)
    assert 74 * row_bytes <= used <= (74 + 16) * row_bytes  # the epoch and a window ahead
    assert source.take.__self__.free == []
    assert len(source.filling) == 2


@pytest.mark.parametrize("memory", [0, 1 << 30])
def test_rows_without_a_task_loss_are_refused_with_the_remedy(store, memory):
    rows = make_rows(store.layout, 13, 2)
    scores = {name: value.copy() for name, value in rows.scores.items()}
    scores["task_loss"][5] = np.nan
    store.write_scores(2, scores)
    reading = Reading(batch_size=10, window=16, memory=memory)
    with pytest.raises(UserError, match=r"1 of \d+ rows read from unit 2 \(00002\.tar\).*submit stage=probe"):
        everything(BatchReader(store, ALL, reading))
    everything(BatchReader(store, Needs(labels=True), reading))
    keep = np.ones(74, dtype=bool)
    keep[45] = False
    everything(BatchReader(store, ALL, reading, keep=keep))


@pytest.mark.parametrize("memory", [0, 1 << 30])
def test_stopping_early_leaves_no_thread(store, memory):
    before = threading.active_count()
    batches = BatchReader(store, ALL, Reading(batch_size=10, window=16, memory=memory)).batches(0, 1000)
    next(batches)
    assert threading.active_count() > before
    batches.close()
    alive = [thread for thread in threading.enumerate() if "ThreadPoolExecutor" in thread.name and thread.is_alive()]
    assert len(alive) == 0


@pytest.mark.parametrize("sampling", ["uniform", "class_balanced", "triplets"])
def test_pairs_are_two_different_views_of_a_row(store, sampling):
    needs = Needs(views=2, sampling=sampling, rows_per_class=2, negatives=2)
    embedding = store.representations()
    for batch in everything(BatchReader(store, needs, Reading(batch_size=12, window=40))):
        assert (batch.representation_BVD[:, 0] != batch.representation_BVD[:, 1]).any(dim=1).all()
        for row, pair in zip(batch.row_B.tolist(), batch.representation_BVD.numpy(), strict=True):
            assert all((embedding[row] == one).all(axis=1).sum() == 1 for one in pair)


def test_pairs_of_a_store_of_one_view_are_refused_with_the_remedy(store_of):
    store = store_of(make_layout(units=1, views=1), [20])[0]
    with pytest.raises(UserError, match=r"wants 2 different views .* holds 1\. Cache more.*cache\.random_views"):
        BatchReader(store, Needs(views=2), Reading(batch_size=4))
