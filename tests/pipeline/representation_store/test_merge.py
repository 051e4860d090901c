"""Stores made in several places become the one that a single place would have made."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cluster.submit import main
from pipeline.errors import UserError
from pipeline.progress import Silent
from pipeline.representation_store import RepresentationStore
from pipeline.representation_store import merge as merging
from pipeline.representation_store.merge import compact, merge
from pipeline.representation_store.verify import verify
from tests.pipeline.representation_store.conftest import make_layout, make_rows, tree

LAYOUT = make_layout(units=4, dtype="int8", compressor="zstd")
RUN = {"class_names": ["a", "b", "c"]}
COUNTS = [12, 0, 5, 40]


@pytest.fixture
def made(tmp_path):
    """A store with some of the units."""

    def make(name, units, layout=LAYOUT, run=RUN):
        store = RepresentationStore.create(tmp_path / name, layout, run)
        for unit in units:
            store.write_unit(unit, make_rows(layout, COUNTS[unit], unit))
        return store

    return make


def test_merged_stores_are_byte_for_byte_the_store_that_one_place_makes(made, tmp_path):
    one, other, whole = made("one", [3, 0]), made("other", [1]), made("whole", [0, 1, 3])
    before = tree(one.path), tree(other.path)
    merged = merge([one.path, other.path], tmp_path / "merged", Silent())
    assert tree(merged.path) == tree(whole.path)
    assert (tree(one.path), tree(other.path)) == before
    assert merged.committed() == [0, 1, 3]
    assert verify(merged.path, Silent()) == []
    third = made("third", [2])
    assert merge([merged.path, third.path], tmp_path / "all", Silent()).counts() == dict(enumerate(COUNTS))


def test_a_merge_that_was_cut_off_anywhere_goes_on_to_the_same_bytes(made, tmp_path, monkeypatch):
    stores = [made("one", [0, 3]).path, made("other", [2]).path]
    whole = tree(merge(stores, tmp_path / "whole", Silent()).path)
    real, left = merging.write_bytes, 0

    def cut_off(path, data):
        nonlocal left
        left -= 1
        if left < 0:
            raise KeyboardInterrupt
        real(path, data)

    monkeypatch.setattr(merging, "write_bytes", cut_off)
    cuts = 0
    for allowed in (0, 1, 5, 9, 100):
        left = allowed
        try:
            merge(stores, tmp_path / "merged", Silent())
        except KeyboardInterrupt:
            cuts += 1
    assert cuts >= 3
    assert tree(tmp_path / "merged") == whole


def test_units_in_two_stores_are_refused_by_name(made, tmp_path):
    one, other = made("one", [0, 3]), made("other", [2, 3])
    with pytest.raises(UserError, match=r"1 units are committed in several stores:\n  unit 3 \(00003.tar\): .*one and"):
        merge([one.path, other.path], tmp_path / "merged", Silent())
    assert not (tmp_path / "merged").exists()


def test_stores_of_other_runs_are_refused_with_the_difference(made, tmp_path):
    one = made("one", [0])
    other = made("other", [2], run={"class_names": ["a", "b", "z"]})
    with pytest.raises(UserError, match=r'different runs:\n  class_names\[2\]: "c" → "z"'):
        merge([one.path, other.path], tmp_path / "merged", Silent())
    layout = replace(LAYOUT, units=LAYOUT.units[:3])
    with pytest.raises(UserError, match=r"layout.units\[3\]"):
        merge([one.path, made("third", [2], layout=layout).path], tmp_path / "merged", Silent())
    with pytest.raises(UserError, match="is one of the stores"):
        merge([one.path, other.path], one.path, Silent())
    with pytest.raises(UserError, match="two stores or more"):
        merge([one.path], tmp_path / "merged", Silent())


@pytest.mark.parametrize("damage", ["flip", "remove"])
def test_a_damaged_object_is_never_copied(made, tmp_path, damage):
    one, other = made("one", [0, 3]), made("other", [2])
    path = one.shard_path("scale", 3)
    if damage == "flip":
        data = bytearray(path.read_bytes())
        data[7] ^= 1
        path.write_bytes(data)
    else:
        path.unlink()
    with pytest.raises(UserError, match=r"scale.* is missing or damaged: unit 3 \(00003.tar\) was not copied"):
        merge([one.path, other.path], tmp_path / "merged", Silent())
    assert RepresentationStore.open(tmp_path / "merged").committed() == [0]


def test_compacted_units_are_numbered_densely_and_readers_see_the_same_rows(made, tmp_path):
    store = made("store", [3, 1, 0])
    small = compact(store.path, tmp_path / "small", Silent())
    assert small.counts() == {0: 12, 1: 0, 2: 40}
    assert [unit.name for unit in small.layout.units] == ["00000.tar", "00001.tar", "00003.tar"]
    assert small.run["compacted_from"] == {"run": store.digest, "units": [0, 1, 3]}
    assert small.keys() == store.keys()
    np.testing.assert_array_equal(small.representations(), store.representations())
    for array in small.specs:
        np.testing.assert_array_equal(small.load(array), store.load(array))
    assert verify(small.path, Silent()) == []
    before = tree(small.path)
    compact(store.path, tmp_path / "small", Silent())
    assert tree(small.path) == before
    with pytest.raises(UserError, match="no unit is committed"):
        compact(made("empty", []).path, tmp_path / "none", Silent())


def test_the_verbs(made, tmp_path, capsys):
    made("one/store", [0, 3])
    other = made("other/store", [2])
    assert main(["merge", f"stores=[{tmp_path}/one,{other.path}]", f"into={tmp_path}/merged"]) == 0
    assert f"{tmp_path}/merged/store: 57 rows in 3 of 4 units" in capsys.readouterr().out
    assert main(["compact", f"store={tmp_path}/merged", f"into={tmp_path}/small"]) == 0
    assert "57 rows in 3 of 3 units" in capsys.readouterr().out
