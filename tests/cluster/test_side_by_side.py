"""Units that several processes share come out as one process makes them; one that dies is said."""

from __future__ import annotations

from pathlib import Path

import pytest

from cluster.executors import _side_by_side
from cluster.submit import main
from stages.base import Unit
from tests.cluster.dying import Dying, work
from tests.pipeline.caching.test_job import tree
from tests.stages.test_cache import BASE, TINY


@pytest.fixture
def configs(tmp_path: Path) -> Path:
    folder = tmp_path / "configs" / "backbone"
    folder.mkdir(parents=True)
    (folder / "one.yaml").write_text(TINY)
    return tmp_path / "configs"


def submit(configs: Path, runs: Path, *arguments: str) -> int:
    return main([*arguments, *BASE, "pack.min_tars=4", f"runs_root={runs}", "--config-dir", str(configs)])


def test_two_processes_make_the_bytes_of_one_and_a_broken_tar_fails_alone(
    configs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # of the processes that are started; this one has one thread, too
    assert submit(configs, tmp_path, "stage=pack") == 0
    [tar] = tmp_path.glob("pack-*/tars/00002.tar")
    runs = {processes: tmp_path / str(processes) for processes in (1, 2)}
    whole = tar.read_bytes()
    tar.write_bytes(whole[:5000])
    for processes, folder in runs.items():
        folder.mkdir()
        (folder / tar.parent.parent.name).symlink_to(tar.parent.parent)
        capsys.readouterr()
        assert submit(configs, folder, "stage=cache", f"cluster.processes={processes}") == 1
        output = capsys.readouterr().err
        assert "unit 000002" in output
        assert "broken at byte 5000" in output
        assert (", 2 at once" in output) == (processes == 2)
        [store] = folder.glob("cache-*/store")
        assert sorted(path.stem for path in (store / "commits").iterdir()) == ["000000", "000001", "000003"]
    tar.write_bytes(whole)
    for folder in runs.values():
        assert submit(configs, folder, "stage=cache", "cluster.processes=1") == 0
    one, two = (tree(*folder.glob("cache-*/store")) for folder in runs.values())
    assert one == two


def test_a_process_that_dies_fails_its_unit_and_the_others_are_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_side_by_side, "_work", work)
    monkeypatch.setattr(_side_by_side, "gpus", lambda: 0)
    units = [Unit(id=str(i), what=f"unit {i}") for i in range(5)]
    results = {unit.id: reason for unit, reason in _side_by_side.run_side_by_side(Dying(), units, 2)}  # type: ignore[arg-type]
    assert "ended by signal 9" in str(results.pop("1"))
    assert results == dict.fromkeys("0234")
    alone = {unit.id: reason for unit, reason in _side_by_side.run_side_by_side(Dying(), units[1:], 1)}  # type: ignore[arg-type]
    assert "ended by signal 9" in str(alone.pop("1"))
    assert all("have died" in str(reason) for reason in alone.values())


def test_each_process_gets_a_gpu_of_those_that_are_visible(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_side_by_side, "gpus", lambda: 2)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert _side_by_side._devices(3) == ["0", "1", "0"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,7")
    assert _side_by_side._devices(2) == ["5", "7"]
