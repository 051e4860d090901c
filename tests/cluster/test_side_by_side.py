"""Units that several processes share come out as one process makes them; those that die are replaced."""

from __future__ import annotations

import multiprocessing
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from cluster.executors import _side_by_side
from cluster.submit import main
from pipeline.interruption import Interrupted, ask_to_stop
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


BEGUN: list[str] = []


@pytest.fixture
def dying(monkeypatch: pytest.MonkeyPatch) -> None:
    BEGUN.clear()
    monkeypatch.setattr(_side_by_side, "_work", work)
    monkeypatch.setattr(_side_by_side, "gpus", lambda: 0)


def side_by_side(ids: Sequence[str], count: int) -> Iterator[tuple[Unit, str | None]]:
    units = [Unit(id=name, what=f"unit {name}") for name in ids]
    return _side_by_side.run_side_by_side(Dying(), units, count, lambda unit: BEGUN.append(unit.id))  # type: ignore[arg-type]


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.usefixtures("dying")
def test_processes_that_die_are_replaced_and_only_a_unit_that_has_ended_three_fails(tmp_path: Path, count: int) -> None:
    twice = f"dies-2-{tmp_path / 'twice'}"
    results = list(side_by_side(["a", "dies", "b", twice, "c"], count))
    reasons = {unit.id: reason for unit, reason in results}
    assert len(results) == len(reasons) == 5
    assert "3 processes died at it, the last one so: ended by signal 9" in str(reasons.pop("dies"))
    assert reasons == dict.fromkeys(["a", "b", "c", twice])
    assert (tmp_path / "twice").read_text() == "xxx"
    assert sorted(BEGUN) == sorted(["a", "b", "c", *3 * ["dies"], *3 * [twice]])


@pytest.mark.usefixtures("dying")
def test_asked_to_stop_it_ends_the_processes_and_drops_their_units(tmp_path: Path) -> None:
    beginning = tmp_path / "began"
    results = side_by_side(["a", f"sleeps-{beginning}"], 2)
    assert next(results)[0].id == "a"
    while not beginning.exists():
        time.sleep(0.01)
    ask_to_stop()
    began = time.monotonic()
    with pytest.raises(Interrupted):
        next(results)
    assert time.monotonic() - began < 20, "it sleeps for 60 s"
    assert not [child for child in multiprocessing.active_children() if child.name.startswith("dying-")]


@pytest.mark.usefixtures("dying")
def test_processes_that_were_told_to_end_are_not_replaced(tmp_path: Path) -> None:
    """A scheduler signals every process of a job; whose turn comes first is chance."""
    beginning = tmp_path / "began"
    results = side_by_side([f"sleeps-{beginning}", "a", "b"], 2)
    assert [next(results)[0].id for _ in "ab"] == ["a", "b"]
    while not beginning.exists():
        time.sleep(0.01)
    [child] = [child for child in multiprocessing.active_children() if child.name == "dying-0"]
    child.terminate()
    timer = threading.Timer(0.2, ask_to_stop)
    timer.start()
    with pytest.raises(Interrupted):
        next(results)
    timer.join()


def test_each_process_gets_a_gpu_of_those_that_are_visible(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_side_by_side, "gpus", lambda: 2)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert _side_by_side._devices(3) == ["0", "1", "0"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,7")
    assert _side_by_side._devices(2) == ["5", "7"]
