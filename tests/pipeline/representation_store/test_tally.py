"""Counting a store without opening it gives what reading every record gives, and opens only what is new."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.errors import UserError
from pipeline.faults import Quarantined
from pipeline.files import write_bytes, write_json
from pipeline.representation_store import Commit, RepresentationStore, tally
from pipeline.representation_store.records import write_commit
from pipeline.representation_store.tally import TALLY, Tally
from pipeline.representation_store.tally import tally as count
from tests.pipeline.representation_store.conftest import make_layout, make_rows

RUN = "0" * 64
UNITS = 6
#: Keys and reasons that try to look like the record around them.
NASTY = st.text(alphabet='],[{}":\\\n\té0 rowskeyn', max_size=40) | st.sampled_from(
    ['],\n  "rows": 7,\n', '\n      "key": ', '"unit": 3\n}\n', "\\", '"']
)


def commit(folder: Path, unit: int, rows: int, quarantined: list[tuple[str, str]]) -> None:
    write_commit(
        folder / "commits",
        Commit(
            unit=unit,
            name=f"{unit:05d}.tar",
            run=RUN,
            rows=rows,
            quarantined=tuple(Quarantined(key=key, reason=reason) for key, reason in quarantined),
            checksums={"embedding": "a" * 64, "key": None, "label": "b" * 64},
        ),
    )


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Five of its six units are done: 10, 11, 12, 13 and 14 rows, 0 to 4 samples set aside."""
    RepresentationStore.create(tmp_path, make_layout(units=UNITS), {"backbone": {}, "class_names": ["a", "b", "c"]})
    for unit in range(UNITS - 1):
        commit(tmp_path, unit, 10 + unit, [(f"k{i}", "is torn") for i in range(unit)])
    return tmp_path


ALL = Tally(units=UNITS, done=frozenset(f"{unit:06d}" for unit in range(UNITS - 1)), rows=60, quarantined=10)


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the store had more units than are read in full."""
    monkeypatch.setattr(tally, "FEW", 0)


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    """The records that were opened since it was asked last."""
    found: list[str] = []
    original = os.open

    def counting(path: Any, *args: Any, **kwargs: Any) -> int:
        if str(path).endswith(".json"):
            found.append(str(path))
        return original(path, *args, **kwargs)

    monkeypatch.setattr(os, "open", counting)

    def ask() -> list[str]:
        names = [name for name in found if not name.endswith("tally.json")]
        found.clear()
        return names

    return ask


def test_nothing_is_there(tmp_path: Path) -> None:
    assert count(tmp_path) == Tally(units=None)


def test_a_small_store_is_read_in_full_each_time(store: Path) -> None:
    assert count(store) == ALL == count(store)
    assert not (store / TALLY).exists()


@pytest.mark.usefixtures("large")
def test_of_a_large_store_a_record_is_opened_once(store: Path, opened: Callable[[], list[str]]) -> None:
    assert count(store) == ALL
    assert len(opened()) == UNITS - 1
    assert count(store) == ALL
    assert opened() == []
    commit(store, 5, 3, [])
    (store / "commits" / "000001.json").unlink()
    commit(store, 2, 7, [("k", "another reason, after a tar was mended")])
    changed = count(store)
    assert sorted(opened()) == ["000002.json", "000005.json"]
    assert changed.done == {"000000", "000002", "000003", "000004", "000005"}
    assert (changed.rows, changed.quarantined) == (60 - 11 - 12 + 7 + 3, 10 - 1 - 2 + 1)


@pytest.mark.usefixtures("large")
def test_who_commits_counts_now_and_then(
    store: Path, opened: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tally, "EVERY", 4)
    for unit in range(UNITS - 1):
        tally.tally_now_and_then(store, unit)
        assert (store / TALLY).exists() == (unit >= 3)
    assert len(opened()) == UNITS - 1
    assert count(store) == ALL
    assert opened() == []
    RepresentationStore.open(store).withdraw(0)
    assert not (store / TALLY).exists(), "the next record may be given the inode of the one that is gone"


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize("text", [b"", b"[]", b'{"names": ["000000.json"], "stamps": [1]}', b"\xff", b'{"names": 3}'])
def test_a_damaged_memory_costs_time_and_nothing_else(store: Path, text: bytes) -> None:
    count(store)
    (store / TALLY).write_bytes(text)
    assert count(store) == ALL


@pytest.mark.usefixtures("large")
def test_a_store_of_somebody_else_is_counted(store: Path) -> None:
    (store / "telemetry").write_text("no folder, so nothing can be remembered")
    assert count(store) == ALL


@given(records=st.lists(st.tuples(st.integers(0, 10**9), st.lists(st.tuples(NASTY, NASTY), max_size=3)), max_size=4))
def test_looking_tells_what_reading_tells(
    tmp_path_factory: pytest.TempPathFactory, records: list[tuple[int, list[tuple[str, str]]]]
) -> None:
    folder = tmp_path_factory.mktemp("store")
    for unit, (rows, quarantined) in enumerate(records):
        commit(folder, unit, rows, quarantined)
        name = f"{unit:06d}.json"
        assert tally._look((folder / "commits" / name).read_bytes(), name) == (rows, len(quarantined))


@pytest.mark.parametrize("few", [0, 1000])
def test_a_record_that_is_not_whole_is_named(store: Path, few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tally, "FEW", few)
    count(store)
    commits = store / "commits"
    write_bytes(commits / "000001.json", (commits / "000001.json").read_bytes()[:-30])
    write_bytes(commits / "000002.json", b"")
    write_bytes(commits / "000003.json", b"\0" * 900)
    ten = (commits / "000000.json").read_bytes().replace(b'"rows": 10', b'"rows": ten')
    write_bytes(commits / "000004.json", ten)
    found = count(store)
    assert found.done == {"000000"}
    assert found.rows == 10
    assert list(found.failed) == ["000001", "000002", "000003", "000004"]
    assert all("the record is damaged" in reason and name in reason for name, reason in found.failed.items())


def test_a_flipped_bit_in_a_small_store_is_named(store: Path) -> None:
    for name in ("commits/000001.json", "run.json"):
        path = store / name
        whole = path.read_bytes()
        path.write_bytes(whole.replace(b"a", b"c", 1))
        if name == "run.json":
            with pytest.raises(UserError, match=r"run\.json: the record is damaged"):
                count(store)
        else:
            assert list(count(store).failed) == ["000001"]
        path.write_bytes(whole)


def test_a_unit_that_is_done_has_not_failed(store: Path) -> None:
    for unit in (1, 5):
        write_json(store / "failures" / f"{unit:06d}.json", {"unit": unit, "reason": f"tar {unit} is torn"})
    (store / "failures" / "000007.json").write_text("{")
    assert count(store).failed == {
        "000005": "tar 5 is torn",
        "000007": f"{store / 'failures' / '000007.json'} is damaged; the next try says the reason again",
    }


def test_counting_thousands_opens_each_once(tmp_path: Path, opened: Callable[[], list[str]]) -> None:
    units = 5_000
    store = RepresentationStore.create(tmp_path, make_layout(units=2), {"backbone": {}, "class_names": ["a", "b", "c"]})
    store.write_unit(0, make_rows(store.layout, 7, 0), [Quarantined(key="k", reason="is torn")])
    form = (store.commits / "000000.json").read_text()
    for unit in range(1, units):
        (store.commits / f"{unit:06d}.json").write_text(form.replace('"unit": 0', f'"unit": {unit}'))
    shape = json.loads((tmp_path / "label" / "zarr.json").read_text())
    (tmp_path / "label" / "zarr.json").write_text(json.dumps({**shape, "shape": [units, shape["shape"][1]]}))
    opened()
    seconds = []
    for expected in (units, 0):
        began = time.process_time()
        found = count(tmp_path)
        seconds.append(time.process_time() - began)
        assert (found.units, len(found.done), found.rows, found.quarantined) == (units, units, 7 * units, units)
        assert len(opened()) == expected
    assert max(seconds) < 1, "a twentieth of 100,000 takes less than .1 s on a quiet core"
