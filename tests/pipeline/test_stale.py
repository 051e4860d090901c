from __future__ import annotations

import errno
import io
import os
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline import stale
from pipeline.files import read_json, write_json
from pipeline.images.archive import BrokenTar
from pipeline.images.tars import TarSample, read_tar
from pipeline.many_files import file_stamps, read_files
from pipeline.representation_store import RepresentationStore
from pipeline.stale import ReplacedError, SteadyFile, again_if_stale
from tests.pipeline.representation_store.conftest import make_layout, make_rows

STALE = OSError(errno.ESTALE, os.strerror(errno.ESTALE))


@pytest.fixture(autouse=True)
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    found: list[float] = []
    monkeypatch.setattr(stale.time, "sleep", found.append)
    return found


def failing(times: int, error: OSError, real: Callable[..., Any]) -> Callable[..., Any]:
    """``real``, which first fails so often."""
    left = [times]

    def action(*arguments: Any, **named: Any) -> Any:
        if left[0]:
            left[0] -= 1
            raise error
        return real(*arguments, **named)

    return action


@pytest.mark.parametrize("times", range(stale.ATTEMPTS + 1))
def test_it_is_done_again_a_bounded_number_of_times(times: int, pauses: list[float]) -> None:
    action = again_if_stale(failing(times, STALE, lambda: "read"))
    if times < stale.ATTEMPTS:
        assert action() == "read"
        assert pauses == [stale.PAUSE_S * 4**number for number in range(times)]
    else:
        with pytest.raises(OSError, match=STALE.strerror):
            action()


def test_other_errors_pass_at_once(pauses: list[float]) -> None:
    with pytest.raises(OSError, match="nothing left"):
        again_if_stale(failing(1, OSError(errno.ENOSPC, "nothing left"), lambda: None))()
    assert pauses == []


def test_a_file_goes_on_where_it_was_read_and_another_one_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(bytes(range(100)))
    with SteadyFile(path) as file:
        assert file.read_at(10, 5) == bytes(range(10, 15))
        file._file = Stale(file._file)  # type: ignore[assignment]
        assert file.read_at(90, 50) == bytes(range(90, 100))
        path.with_name("b").write_bytes(bytes(101))
        path.with_name("b").replace(path)
        file._file = Stale(file._file)  # type: ignore[assignment]
        with pytest.raises(ReplacedError, match="another file took its place"):
            file.read_at(0, 1)


class Stale:
    """An open file whose handle is stale."""

    def __init__(self, file: Any) -> None:
        self.close = file.close

    def seek(self, _: int) -> None:
        raise STALE


def test_a_tar_gives_its_samples_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w") as tar:
        for number in range(4):
            info = tarfile.TarInfo(f"{number}.jpg")
            info.size = 10
            tar.addfile(info, io.BytesIO(bytes([number] * 10)))
    files: list[SteadyFile] = []
    opening = SteadyFile.__enter__
    monkeypatch.setattr(SteadyFile, "__enter__", lambda file: files.append(file) or opening(file))  # type: ignore[func-returns-value]
    found = []
    for sample in read_tar(path):
        assert isinstance(sample, TarSample)
        found.append(sample.data)
        files[0]._file = Stale(files[0]._file)  # type: ignore[assignment]
    assert found == [bytes([number] * 10) for number in range(4)]

    reader = read_tar(path)
    next(reader)
    os.utime(path, ns=(0, 0))
    files[1]._file = Stale(files[1]._file)  # type: ignore[assignment]
    with pytest.raises(BrokenTar, match="Give the same command"):
        next(reader)


def test_records_folders_and_rows_are_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = RepresentationStore.create(tmp_path, make_layout(units=1), {"backbone": {}, "class_names": ["a", "b", "c"]})
    rows = make_rows(store.layout, 7, 0)
    store.write_unit(0, rows, [])
    write_json(tmp_path / "a.json", {"a": 1})
    opening, listing = os.open, os.scandir
    monkeypatch.setattr(os, "open", failing(2, STALE, opening))
    assert np.array_equal(store.read("label", 0), rows.label_R)
    monkeypatch.setattr(os, "open", failing(2, STALE, opening))
    assert [item.data for item in read_files(tmp_path, ["a.json"])] == [(tmp_path / "a.json").read_bytes()]
    monkeypatch.setattr(os, "scandir", failing(1, STALE, listing))
    assert "a.json" in file_stamps(tmp_path, ".json")
    reading = Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", failing(1, STALE, reading))
    assert read_json(tmp_path / "a.json") == {"a": 1}
