"""The stage over a store that a cache left: planning, running, going on, verifying."""

from __future__ import annotations

import re

import pytest
from omegaconf import OmegaConf

from pipeline.config import parse, to_plain
from pipeline.errors import UserError
from pipeline.evaluation.contenders import trained
from pipeline.progress import Silent
from pipeline.training.checkpoints import load_head
from stages.base import make_stage, stage_class
from tests.pipeline.training.conftest import make_store
from tests.stages.tiny import tiny

HEAD = {"kind": "loss_prediction", "hidden": 8}


@pytest.fixture
def experiment(tmp_path):
    def make(head=HEAD, probe=None, **options):
        values = {"steps": 20, "batch_size": 32, "device": "cpu", **options}
        return tiny(tmp_path, head, train_head=values, probe=probe or {})

    return make


@pytest.fixture
def stage(experiment):
    def make(**options):
        stage = make_stage("train_head", experiment(**options))
        if not stage.store_path.exists():
            make_store(stage.store_path, [50, 30])
        return stage

    return make


def go(stage):
    stage.prepare()
    for unit in stage.plan():
        stage.run(unit, Silent())


def test_plan_run_status_and_nothing_left_to_do(stage):
    it = stage(seeds=[0, 4])
    it.prepare()
    (unit,) = it.plan()
    assert (unit.samples, unit.what) == (640, "loss_prediction, seeds 0, 4")
    assert (it.status().done, it.status().total) == (0, 1)
    it.run(unit, Silent())
    assert it.plan() == []
    assert (it.status().done, it.status().samples) == (1, 640)
    assert [load_head(folder).seed for folder in it.head_folders()] == [0, 4]
    assert it.verify(Silent()) == []
    lines = it.summary()
    assert "seed 4: final loss 0." in lines[1]
    assert "samples/s" in lines[1]
    assert str(it.folder) in lines[-1]


def test_a_sweep_is_one_unit_with_a_folder_for_each_point(stage):
    it = stage(seeds=[0, 4], sweep={"weight_decay": [0, 0.1]})
    assert it.plan()[0].what == "loss_prediction, seeds 0, 4 at each of weight_decay-0.0, weight_decay-0.1"
    go(it)
    assert it.plan() == []
    found = sorted(str(path.relative_to(it.folder)) for path in it.folder.glob("*/seed-*"))
    assert found == [f"weight_decay-{decay}/seed-{seed}" for decay in (0.0, 0.1) for seed in (0, 4)]
    assert it.summary()[3].startswith("train_head: weight_decay-0.1 seed 4: final loss ")


def test_the_run_folder_is_that_of_the_head_and_the_training(stage):
    folders = {
        stage().folder,
        stage(base_lr=2e-3).folder,
        stage(head={**HEAD, "margin": 0.2}).folder,
        stage(task_loss="probe").folder,
        stage(seeds=[1]).folder,
    }
    assert len(folders) == 5
    assert stage(device="cuda", threads=7, memory_gb=9, log_every=3).folder == stage().folder


def test_a_cache_that_is_not_done_is_refused(experiment):
    it = make_stage("train_head", experiment())
    with pytest.raises(UserError, match=r"cache is not done .*Run: submit stage=cache"):
        it.plan()


def test_without_task_losses_the_probe_is_named(experiment):
    it = make_stage("train_head", experiment())
    make_store(it.store_path, [50, 30], scored=False)
    with pytest.raises(UserError, match=r"50 of 50 rows .* have no task loss.*stage=probe"):
        go(it)


def test_with_a_probe_the_losses_are_its_and_the_entropy_head_carries_it(stage):
    it = stage(task_loss="probe", head={"kind": "classifier_entropy"})
    assert it.inputs() == ("cache", "probe")
    with pytest.raises(UserError, match="probe is not done"):
        it.plan()
    probe = it.before("probe")
    go(probe)
    probe.finish(Silent())
    go(it)
    assert it.plan() == []
    assert load_head(it.head_folders()[0]).weight_CD.shape == (3, 16)
    assert it.status().samples == 0
    assert it.summary() == [f"train_head: {it.folder}"]


def test_a_damaged_head_is_found_and_made_again(stage):
    it = stage()
    go(it)
    for name in ("head.safetensors", "head.json"):
        path = it.head_folders()[0] / name
        good = path.read_bytes()
        for bad in (good[:-9], re.sub(rb"[1-8]", b"9", good, count=1), None):
            path.unlink() if bad is None else path.write_bytes(bad)
            (problem,) = it.verify(Silent())
            assert name in problem
            assert it.status().done == 0
            go(it)
            assert path.read_bytes() == good


def test_a_head_in_the_place_of_another_seed_is_found(stage):
    """Its files are whole, and two seeds would be one: their numbers have no spread."""
    it = stage(seeds=[0, 1])
    go(it)
    one, other = it.head_folders()
    for name in ("head.json", "head.safetensors"):
        (other / name).write_bytes((one / name).read_bytes())
    with pytest.raises(UserError, match=r"seed-1 holds another head than 'x': seed: 0 → 1"):
        trained("x", "head", it.experiment.head, it.folder, [0, 1])
    (problem,) = it.verify(Silent())
    assert problem.endswith(f"{other} holds the head of seed 0")
    go(it)
    assert (load_head(other).seed, it.verify(Silent())) == (1, [])


def test_the_yaml_holds_every_value_and_its_default():
    from cluster.compose import CONFIGS

    config = stage_class("train_head").Config
    files = {"recipe": "recipe/paper", "train_head": "stage/train_head"}  # the one takes values over from the other
    whole = OmegaConf.create({key: OmegaConf.load(CONFIGS / f"{file}.yaml") for key, file in files.items()})
    values = OmegaConf.to_container(whole, resolve=True)["train_head"]
    assert to_plain(parse(config, values, "train_head")) == to_plain(config())
    assert values.keys() == to_plain(config()).keys()


def test_only_some_rows_are_trained_on_and_what_a_file_of_them_holds_decides(stage, tmp_path):
    path = tmp_path / "rows.txt"
    path.write_text("\n".join(map(str, range(60))))
    one, whole = stage(only_rows=path), stage()
    go(one)
    go(whole)
    heads = [load_head(it.head_folders()[0]).state_dict() for it in (one, whole)]
    assert any(not heads[0][name].equal(heads[1][name]) for name in heads[0])
    path.write_text("3\n4\n")
    assert len({one.folder, stage(only_rows=path).folder, whole.folder}) == 3
    with pytest.raises(UserError, match=r"train_head.only_classes: 'cat': no class"):
        stage(only_classes=["cat"]).plan()


def test_a_few_shots_from_a_head_that_is_there(stage):
    source = stage()
    go(source)
    it = stage(shots=3, init_from=source.folder)
    assert it.folder not in (source.folder, stage(shots=3).folder, stage(init_from=source.folder).folder)
    go(it)
    assert it.plan() == []
    before = it.folder
    other = stage(base_lr=5e-4)
    go(other)
    (source.head_folders()[0] / "head.json").write_bytes((other.head_folders()[0] / "head.json").read_bytes())
    assert stage(shots=3, init_from=source.folder).folder != before  # what it holds decides, not its name


def test_fields_that_came_later_leave_the_folders_of_runs_that_do_not_use_them(stage):
    config = stage().meaning()["config"]
    assert config.keys().isdisjoint({"shots", "shots_seed", "init_from"})
    assert stage(shots_seed=1).meaning()["config"]["shots_seed"] == 1


def test_few_shots_with_losses_that_know_the_test_are_refused(stage):
    it = stage(shots=3, task_loss="probe")
    probe = it.before("probe")
    go(probe)
    probe.finish(Silent())
    with pytest.raises(
        UserError, match=r"train_head.shots: the head loss_prediction learns from task losses, and those"
    ):
        it.plan()
    assert stage(shots=3, task_loss="probe", head={"kind": "mc_info_nce"}).plan()


def test_few_shots_with_losses_of_a_probe_on_these_very_shots(stage):
    options = {"shots": 15, "shots_seed": 1, "task_loss": "probe"}
    it = stage(**options, probe={"shots": 15, "shots_seed": 1})
    probe = it.before("probe")
    go(probe)
    probe.finish(Silent())
    go(it)
    assert it.plan() == []
    for other in ({"shots_seed": 2}, {"shots": 14}):
        with pytest.raises(UserError, match=r"Fit the probe on the shots alone.*probe\.shots="):
            stage(**{**options, **other}, probe={"shots": 15, "shots_seed": 1})._refuse_leak()
    with pytest.raises(UserError, match=r"without train_head\.only_…, of which the probe knows nothing"):
        stage(**options, only_classes=["a", "b"], probe={"shots": 15, "shots_seed": 1})._refuse_leak()
