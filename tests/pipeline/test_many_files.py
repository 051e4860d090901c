from __future__ import annotations

from pathlib import Path

import pytest

from pipeline import many_files
from pipeline.files import write_bytes
from pipeline.many_files import file_names, file_stamps, read_files


@pytest.mark.parametrize("quick", [0.0, 1e9])
def test_files_are_read_in_order_and_whole_however_many_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quick: float
) -> None:
    monkeypatch.setattr(many_files, "QUICK_SECONDS", quick)
    monkeypatch.setattr(many_files, "_AT_ONCE", 4)
    held = {f"{index}.json": b"x" * (index * 3001) for index in range(23)}
    for name, data in held.items():
        (tmp_path / name).write_bytes(data)
    (tmp_path / "0.json.partial").write_bytes(b"")
    assert sorted(file_names(tmp_path, ".json")) == sorted(held)
    wanted = ["gone.json", *reversed(held)]
    found = list(read_files(tmp_path, wanted))
    assert [item.name for item in found] == wanted
    assert found[0].data is None
    assert {item.name: item.data for item in found[1:]} == held


def test_a_file_that_takes_the_name_of_another_has_another_stamp(tmp_path: Path) -> None:
    for name in ("1.json", "2.json"):
        write_bytes(tmp_path / name, b"{}")
    before = file_stamps(tmp_path, ".json")
    assert before == file_stamps(tmp_path, ".json")
    write_bytes(tmp_path / "2.json", b"{}")
    after = file_stamps(tmp_path, ".json")
    assert (after["1.json"], after.keys()) == (before["1.json"], before.keys())
    assert after["2.json"] != before["2.json"]


def test_no_folder_is_no_files(tmp_path: Path) -> None:
    folder = tmp_path / "nothing"
    assert file_names(folder, ".json") == []
    assert file_stamps(folder, ".json") == {}
    assert [item.data for item in read_files(folder, ["a.json"])] == [None]
    assert list(read_files(folder, [])) == []
