"""A part of a store: which rows it has, that only they are read, and what is said of one that is no part."""

from __future__ import annotations

from codecs import BOM_UTF8
from dataclasses import replace

import numpy as np
import pytest
import torch

from pipeline.errors import UserError
from pipeline.evaluation.rows import ChosenRows
from pipeline.faults import Quarantined
from pipeline.heads.base import Needs
from pipeline.held_out import hashes, held_out
from pipeline.probing.rows import labels_to_fit
from pipeline.probing.settings import ProbeSettings
from pipeline.representation_store import RepresentationStore
from pipeline.representation_store.reader import BatchReader, Reading
from pipeline.training.holdout import training_rows
from pipeline.training.subset import SubsetConfig, check_names, content, keys_left_out, keys_trained_on, limit
from pipeline.training.summary import summarise


def rows_of(store):
    return np.flatnonzero(store.takes_part).tolist()


def test_classes_by_name_index_and_list_are_the_rows_with_these_labels(store, tmp_path):
    labels = store.load("label")
    (tmp_path / "classes.txt").write_text("c\na\n")
    for choice in (("a", "c"), (0, 2), ("c", 0), str(tmp_path / "classes.txt")):
        assert rows_of(limit(store, SubsetConfig(only_classes=choice))) == np.flatnonzero(labels != 1).tolist()


def test_units_by_index_and_pattern(store):
    for choice in ((0, 2), ("00000.tar", 2), ("0000[02].*", 0)):
        assert rows_of(limit(store, SubsetConfig(only_units=choice))) == [*range(120), *range(197, 297)]


@pytest.mark.parametrize("form", ["text", "S", "U"])
def test_keys_by_text_and_array(store, tmp_path, form):
    keys = ["2/99", "0/0", "1/50", "0/0"]
    path = tmp_path / ("keys.txt" if form == "text" else "keys.npy")
    if form == "text":
        path.write_bytes(BOM_UTF8 + b"\n".join(key.encode() for key in keys) + b"\r\n\n")
    else:
        np.save(path, np.array(keys, dtype=f"{form}40"))  # wider than the store's
    assert rows_of(limit(store, SubsetConfig(only_keys=path))) == [0, 170, 296]


def test_a_key_in_two_units_is_two_rows_and_one_that_was_set_aside_is_none(make, tmp_path):
    store = make([5, 4])
    rows = {unit: store.commit(unit).rows for unit in (0, 1)}
    assert rows == {0: 5, 1: 4}
    key_R = store.read("key", 0)
    store._write_shard("key", 1, key_R[:4])
    path = tmp_path / "keys.txt"
    path.write_text("0/3\nspoilt\n")
    with pytest.raises(UserError, match=r"1 of the 2 keys .*nor were they set aside.*'spoilt'"):
        limit(store, SubsetConfig(only_keys=path))
    from pipeline.representation_store.records import write_commit

    write_commit(store.commits, replace(store.commit(1), quarantined=(Quarantined(key="spoilt", reason="cut off"),)))
    store = RepresentationStore.open(store.path)
    assert rows_of(limit(store, SubsetConfig(only_keys=path))) == [3, 8]


@pytest.mark.parametrize("form", ["text", "int64", "uint8", "bool"])
def test_rows_by_text_number_and_bool(store, tmp_path, form):
    path = tmp_path / ("rows.txt" if form == "text" else "rows.npy")
    if form == "text":
        path.write_text("200\n3\n3\n")
    elif form == "bool":
        np.save(path, np.isin(np.arange(297), [3, 200]))
    else:
        np.save(path, np.array([200, 3, 3], dtype=form))
    assert rows_of(limit(store, SubsetConfig(only_rows=path))) == [3, 200]


def test_everything_that_is_set_applies_and_with_it_the_held_out_rows(store):
    part = limit(store, SubsetConfig(only_classes=("a", "b"), only_units=(0, 1)))
    label, place = store.load("label"), np.arange(297)
    expected = (label != 2) & (place < 197)
    np.testing.assert_array_equal(part.takes_part, expected)
    keep, out = training_rows(part, 0.3), held_out(store.load("key"), 0.3)
    for side, rows in ((keep, expected & ~out), (~keep, expected & out)):
        seen = torch.cat(
            [batch.row_B for batch in BatchReader(part, Needs(), Reading(batch_size=50), keep=side).once()]
        )
        assert sorted(seen.tolist()) == np.flatnonzero(rows).tolist()


@pytest.mark.parametrize("memory", [0, 1 << 30])
def test_batches_of_a_part_hold_its_rows_with_their_places_and_nothing_else_is_read(store, memory, monkeypatch):
    part = limit(store, SubsetConfig(only_units=(1,), only_classes=("b",)))
    loss_NV, units = store.load("task_loss"), []
    original = RepresentationStore.read
    monkeypatch.setattr(
        RepresentationStore,
        "read",
        lambda self, name, unit, **more: (units.append(unit), original(self, name, unit, **more))[1],
    )
    reader = BatchReader(part, Needs(task_loss=True), Reading(batch_size=16, window=64, memory=memory))
    for step, batch in enumerate(reader.batches(0, 5)):
        rows, views = reader.sampler.batch(step)
        assert part.takes_part[rows].all()
        np.testing.assert_array_equal(batch.row_B.numpy(), rows)
        np.testing.assert_array_equal(batch.task_loss_BV.numpy()[:, 0], loss_NV[rows, views[:, 0]])
    assert set(units) == {1}


def test_memory_is_that_of_the_part(store):
    part = limit(store, SubsetConfig(only_units=(1,)))
    row = 16 * 2 * 2
    reading = Reading(batch_size=8, memory=77 * row)
    assert BatchReader(part, Needs(), reading).resident
    assert not BatchReader(store, Needs(), reading).resident
    reader = BatchReader(part, Needs(), reading)
    next(reader.batches(0, 1))
    assert reader._held.held["embedding"].nbytes == 77 * row


def test_mean_is_that_of_the_part_and_rows_and_classes_are_those_of_the_whole(store):
    part = limit(store, SubsetConfig(only_units=(2,)))
    summary = summarise(part)
    assert (summary.rows, summary.num_classes) == (297, 3)
    views = store.representations()[197:]
    low, high = views.min(axis=1).mean(axis=0), views.max(axis=1).mean(axis=0)
    assert ((low <= summary.mean_D.numpy()) & (summary.mean_D.numpy() <= high)).all()
    assert not torch.allclose(summary.mean_D, summarise(store).mean_D)


def test_nothing_set_is_the_store_itself_and_no_column_is_read(store, monkeypatch):
    monkeypatch.setattr(RepresentationStore, "column", None)
    assert limit(store, SubsetConfig()) is store
    limit(store, SubsetConfig(only_units=(0,)))


@pytest.mark.parametrize(
    ("subset", "message"),
    [
        ({"only_classes": ("a", "bb")}, r"only_classes: 'bb': no class of .* whose 3 classes are 'a', 'b', 'c'"),
        ({"only_classes": (3, -1)}, r"only_classes: 3, -1: 2 that are no class of .*\(0 to 2\)"),
        ({"only_classes": "nowhere.txt"}, "train_head.only_classes: no file there"),
        ({"only_units": (3,)}, r"only_units: 3: .* has no such unit. Its 3 committed units are '00000.tar'"),
        ({"only_units": ("0001.tar",)}, r"only_units: '0001.tar': .* Did you mean '00001.tar'\?"),
        (
            {"only_units": (1,), "only_classes": ()},
            r"has no row. Of 297 rows, .*only_classes 0, train_head.only_units 77",
        ),
    ],
)
def test_what_is_no_part_is_refused(store, subset, message):
    with pytest.raises(UserError, match=message):
        limit(store, SubsetConfig(**subset))


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("only_keys", ["x", "y" * 30], r"2 of the 2 keys of .* are not in .*: 'yyy.*', 'x'"),
        ("only_keys", [1.5], r"holds float64, not keys. Rows go to train_head.only_rows"),
        ("only_keys", [[b"a"]], r"has the shape \(1, 1\)"),
        ("only_rows", [5, 297, -1], r"2 of 3 numbers are no rows of .* 0 to 296: 297, -1"),
        ("only_rows", [True], r"has \(1,\) bools, but .* 297 rows"),
        ("only_rows", [0.5], "holds float64, not row numbers"),
        ("only_rows", ["1/3"], r"not a row number. Keys go to train_head.only_keys"),
    ],
)
def test_arrays_that_name_no_rows_are_refused(store, tmp_path, name, value, message):
    np.save(tmp_path / "part.npy", np.array(value))
    with pytest.raises(UserError, match=message):
        limit(store, SubsetConfig(**{name: tmp_path / "part.npy"}))


def test_files_that_are_no_lists_are_refused(store, tmp_path):
    (tmp_path / "empty.txt").write_text(" \n\n")
    (tmp_path / "torn.npy").write_bytes(b"\x93NUMPY")
    np.save(tmp_path / "pickled.npy", np.array([object()], dtype=object), allow_pickle=True)
    for file, message in (("empty.txt", "is empty"), ("torn.npy", "no .npy file"), ("pickled.npy", "no .npy file")):
        with pytest.raises(UserError, match=message):
            limit(store, SubsetConfig(only_rows=tmp_path / file))
    with pytest.raises(UserError, match=r"train_head\.only_keys: no file at"):
        content(SubsetConfig(only_keys=tmp_path / "nowhere"))


def test_names_are_checked_without_a_row(store, monkeypatch):
    monkeypatch.setattr(RepresentationStore, "column", None)
    check_names(store, SubsetConfig(only_classes=("a",), only_units=(1,)))
    for subset in ({"only_classes": ("d",)}, {"only_units": (9,)}):
        with pytest.raises(UserError, match=r"train_head\.only_"):
            check_names(store, SubsetConfig(**subset))


def test_shots_are_the_smallest_hashes_of_each_class_among_the_rows_that_are_left(store):
    label_N, keys = store.load("label"), np.array(store.keys(), dtype="S")
    chosen = {}
    for shots in (1, 3, 40, 1000):
        taken = set(rows_of(limit(store, SubsetConfig(shots=shots, only_units=(0, 2)))))
        for label in range(3):
            own = [row for row in [*range(120), *range(197, 297)] if label_N[row] == label]
            own.sort(key=lambda row: int(hashes(keys[row : row + 1], salt=1)[0]))
            assert taken.intersection(own) == set(own[:shots])
        chosen[shots] = taken
    assert chosen[1] < chosen[3] < chosen[40] < chosen[1000]
    assert len(chosen[3]) == 9
    assert chosen[3] != set(rows_of(limit(store, SubsetConfig(shots=3, shots_seed=1, only_units=(0, 2)))))


def test_what_is_evaluated_and_what_a_few_shots_train_on_are_disjoint_and_all(store):
    subset = SubsetConfig(shots=4)
    taken = keys_left_out(store, subset)
    assert len(taken) == 12
    assert {store.keys()[row].encode() for row in rows_of(limit(store, subset))} == taken
    fitted_N = labels_to_fit(store, ProbeSettings(shots=4)) >= 0
    assert {store.keys()[row].encode() for row in np.flatnonzero(fitted_N)} == taken, "and a probe is fitted on"
    left = ChosenRows(store, without=taken)
    assert len(left.keys) == 297 - 12
    assert {*map(str.encode, left.keys)} | taken == {*map(str.encode, store.keys())}
    some = ChosenRows(store, 20, taken).keys
    assert len(some) == 20
    assert set(some) < set(left.keys)
    assert keys_left_out(store, SubsetConfig(only_units=(0,))) == frozenset()
    asked = np.array([*map(str.encode, store.keys()[::7]), b"another"])
    assert keys_trained_on(store, SubsetConfig(), asked) == set(asked[:-1].tolist())
    assert keys_trained_on(store, subset, asked) == taken & set(asked.tolist())
    with pytest.raises(UserError, match=r"all 297 rows are trained on or left out .* lower train_head\.shots, and ev"):
        ChosenRows(store, without=keys_left_out(store, SubsetConfig(shots=300)))


@pytest.mark.parametrize("part", [{}, {"only_units": (0, 2)}, {"shots_seed": 3}])
def test_every_number_of_shots_up_to_the_one_that_is_left_out_has_the_same_test(store, part):
    tests = []
    for shots in (1, 2, 5, 10):
        subset = SubsetConfig(shots=shots, **part)
        left = ChosenRows(store, 200, keys_left_out(store, subset, without_shots=10)).keys
        assert not {store.keys()[row] for row in rows_of(limit(store, subset))} & set(left)
        tests.append(left)
    assert len(tests[0]) == 200
    assert tests == [tests[0]] * 4
    alone = keys_left_out(store, SubsetConfig(shots=10, **part))
    assert alone == keys_left_out(store, SubsetConfig(shots=1, **part), without_shots=10)
    assert len(alone) == 30
    with pytest.raises(AssertionError):
        keys_left_out(store, SubsetConfig(shots=5, **part), without_shots=2)
