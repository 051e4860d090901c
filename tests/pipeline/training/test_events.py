"""What TensorBoard shows is what the CSV says, however often the run was cut off; killed ones: test_resume."""

from __future__ import annotations

import sys

import pytest

from pipeline.errors import UserError
from pipeline.progress import Silent
from pipeline.training.config import TrainingConfig
from pipeline.training.events import WithEvents
from pipeline.training.log import TrainingLog
from pipeline.training.loop import train
from pipeline.training.summary import summarise
from pipeline.training.sweep import head_folders
from tests.pipeline.training.conftest import curves
from tests.pipeline.training.test_resume import HEAD, Stop, StopAt


def wanted(path, batch_size=32):
    rows = TrainingLog(path).rows()
    names = [name for name in rows[0] if name not in ("step", "samples")]
    return {name: [(row["step"] * batch_size, pytest.approx(row[name], rel=1e-6)) for row in rows] for name in names}


def config(**options):
    defaults = {"steps": 12, "batch_size": 32, "seeds": (0, 1), "log_every": 2, "checkpoint_seconds": 0}
    return TrainingConfig(**{**defaults, "device": "cpu", "tensorboard": True, **options})


def test_every_line_of_the_csv_is_a_point_of_each_curve_also_after_interruptions(store, tmp_path):
    values = config(validation_share=0.3, validate_every=4, seeds=(0,), sweep={"base_lr": (1e-3, 1e-2)})
    call = {"store": store, "head": HEAD, "summary": summarise(store), "config": values}
    train(**call, folder=tmp_path / "straight", progress=Silent())
    for step in (3, 4, 5):
        with pytest.raises(Stop):
            train(**call, folder=tmp_path / "cut", progress=StopAt(step * 32))
    train(**call, folder=tmp_path / "cut", progress=Silent())
    ones, others = (head_folders(tmp_path / name, values) for name in ("straight", "cut"))
    assert len(ones) == 2
    for one, other in zip(ones, others, strict=True):
        straight, cut = curves(one), curves(other)
        assert straight == wanted(one / "log.csv")
        assert cut == wanted(other / "log.csv")
        assert [sample for sample, _ in cut["loss"]] == [64, 128, 192, 256, 320, 384]
        assert cut["loss"] == straight["loss"]
        assert curves(other / "validation") == wanted(other / "validation.csv")
        assert [sample for sample, _ in curves(other / "validation")["validation_r_auroc"]] == [128, 256, 384]
        assert len(list(other.glob("events.*"))) == 2, "the one that grew, and the one before"


def test_a_torn_record_and_lines_after_the_checkpoint_are_gone_once_it_goes_on(tmp_path):
    log = WithEvents(tmp_path / "log.csv", tmp_path, 10)
    log.cut(0)
    assert not list(tmp_path.iterdir()), "nothing is written before there is a line"
    for step in (1, 2, 3):
        log.append({"step": step, "samples": 10 * step, "loss": 1 / step, "odd": float("nan")})
    (first,) = tmp_path.glob("events.*")
    first.write_bytes(first.read_bytes()[:-5])
    again = WithEvents(tmp_path / "log.csv", tmp_path, 10)
    again.cut(2)
    again.append({"step": 3, "samples": 30, "loss": 0.75, "odd": 2.0})
    assert curves(tmp_path) == {"loss": [(10, 1.0), (20, 0.5), (30, 0.75)], "odd": [(30, 2.0)]}
    assert [path == first for path in sorted(tmp_path.glob("events.*"))] == [True, False]


def test_one_that_watches_sees_each_point_once(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    log = WithEvents(tmp_path / "log.csv", tmp_path, 1)
    log.cut(0)
    log.append({"step": 1, "samples": 1, "loss": 3.0})
    log.append({"step": 2, "samples": 2, "loss": 2.0})
    watching = EventAccumulator(str(tmp_path))
    watching.Reload()
    for loss in (5.0, 6.0):
        log = WithEvents(tmp_path / "log.csv", tmp_path, 1)
        log.cut(1)
        log.append({"step": 2, "samples": 2, "loss": loss})
        watching.Reload()
        assert [(event.step, event.value) for event in watching.Scalars("loss")] == [(1, 3.0), (2, loss)]
    log.cut(0)
    watching.Reload()
    assert watching.Scalars("loss") == []


def test_without_the_package_the_extra_is_named_and_nothing_is_begun(store, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboard.summary.writer.record_writer", None)
    call = {"store": store, "head": HEAD, "summary": summarise(store), "config": config(), "folder": tmp_path / "run"}
    with pytest.raises(UserError, match=r"train_head\.tensorboard=true .*hedgerow\[tensorboard\]"):
        train(**call, progress=Silent())
    assert not (tmp_path / "run").exists()
