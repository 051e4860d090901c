"""The release of a small experiment that really ran: images of 2 × 3 classes, a random ViT, a head of two steps."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import hedgerow
from cluster.compose import compose
from pipeline.errors import UserError
from pipeline.files import read_json, write_bytes
from pipeline.progress import Silent
from pipeline.release.bundle import CARD, CONFIG, WEIGHTS
from stages.base import Experiment, make_stage

CHAIN = ("pack", "cache", "probe", "train_head", "evaluate")
BACKBONE = (
    "backbone=vit_small_random",
    "backbone.model=test_vit",
    "++backbone.num_classes=0",
    "++backbone.size=32",
    "++backbone.compute=fp32",
)


def folder_of_images(root: Path) -> None:
    rng = np.random.default_rng(0)
    for place in range(6):
        colour = rng.integers(0, 256, 3)
        (root / f"class{place}").mkdir(parents=True)
        for number in range(12):
            pixels = (colour + rng.normal(0, 200, (30, 40, 3))).clip(0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(root / f"class{place}" / f"{number}.png")


def experiment_in(folder: Path, *settings: str, backbone: tuple[str, ...] = BACKBONE) -> Experiment:
    images = [f"dataset.root={folder}/images", "dataset.split=seen", "dataset.class_folds=2", "dataset.class_fold=1"]
    return compose(
        [
            "name=small",
            f"runs_root={folder}/runs",
            "dataset=image_folder",
            *images,
            "evaluate.datasets=[image_folder]",
            *(f"downstream.image_folder{item.removeprefix('dataset')}" for item in (images[0], *images[2:])),
            "downstream.image_folder.split=unseen",
            "downstream.image_folder.name=unseen",
            "evaluate.compare=[]",
            *backbone,
            "pack.min_tars=2",
            "cache.batch_size=8",
            "cache.workers=1",
            "train_head.steps=2",
            "train_head.batch_size=16",
            "train_head.seeds=[4,5]",
            "head.hidden=8",
            "evaluate.analyses=[]",
            *settings,
        ]
    ).experiment


def no_plots(folder: Path, *rest: Any) -> None:
    """A report without anything in it."""
    write_bytes(folder / "report.html", b"")


@pytest.fixture(scope="module")
def ready(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which everything before the release is done."""
    folder = tmp_path_factory.mktemp("small")
    torch.set_num_threads(1)
    folder_of_images(folder / "images")
    run_what_is_before(experiment_in(folder))
    return folder


def run_what_is_before(experiment: Experiment) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pipeline.report.build.write_report", no_plots)  # they take longer than all the rest
        for name in CHAIN:
            stage = make_stage(name, experiment)
            stage.prepare()
            for unit in stage.plan():
                stage.run(unit, Silent())
            stage.finish(Silent())


def released(experiment: Experiment) -> Path:
    stage = make_stage("release", experiment)
    stage.prepare()
    for unit in stage.plan():
        stage.run(unit, Silent())
    return stage.folder / experiment.stages["release"].name


def contents(bundle: Path) -> dict[str, bytes]:
    return {name: (bundle / name).read_bytes() for name in (WEIGHTS, CONFIG, CARD)}


def test_the_released_model_gives_what_was_evaluated(ready):
    experiment = experiment_in(ready)
    bundle = released(experiment)
    check = read_json(bundle / CONFIG)["self_check"]
    assert (check["images"], check["embedding_identical"], check["dataset"]) == (8, True, "image_folder")
    assert check["difference"] < 1e-6
    with np.load(make_stage("evaluate", experiment).folder / "rows" / "image_folder.npz") as rows:
        files = [ready / "images" / f"{key.decode()}.png" for key in rows["key"]]
        stored = rows["uncertainty/loss_prediction hidden=8/4/predicted_loss"]
    assert len(files) == 36
    uncertainty = hedgerow.load(bundle)(files).uncertainty.double().numpy()
    assert 0 < np.abs(uncertainty / stored - 1).max() < 1e-3  # the store rounds to float16


def test_the_lines_that_are_shown_load_it_also_where_the_backbone_is_a_file(ready):
    net, path = torch.nn.Sequential(torch.nn.AvgPool2d(4), torch.nn.Flatten()).eval(), ready / "net.pt2"
    batch = torch.export.Dim("batch")
    torch.export.save(torch.export.export(net, (torch.zeros(2, 3, 8, 8),), dynamic_shapes=({0: batch},)), path)
    facts = ("size=8", "mean=[0.5,0.5,0.5]", "std=[0.5,0.5,0.5]", "crop=1.0", "interpolation=bicubic")
    values = ("backbone=export_file", *(f"backbone.{one}" for one in (f"path={path}", "trusted=true", *facts)))
    for backbone in (BACKBONE, values):
        experiment = experiment_in(ready, backbone=backbone)
        run_what_is_before(experiment)
        released(experiment)
        stage, names = make_stage("release", experiment), {"images": sorted((ready / "images").rglob("*.png"))}
        assert stage.verify(Silent()) == []
        exec("\n".join(line.strip() for line in stage.summary()[1:]), names)
        assert names["uncertainty"].shape == (72,)


def test_it_names_no_place_of_this_machine(ready):
    for data in contents(released(experiment_in(ready))).values():
        assert str(ready).encode() not in data


def test_a_second_run_has_nothing_to_do_and_damage_is_found_and_mended(ready):
    experiment = experiment_in(ready)
    bundle, stage = released(experiment), make_stage("release", experiment)
    assert stage.plan() == []
    assert (stage.status().done, stage.status().total) == (1, 1)
    assert stage.verify(Silent()) == []
    assert any(str(bundle) in line for line in stage.summary())
    before = contents(bundle)
    for name in (WEIGHTS, CARD):
        (bundle / name).write_bytes(before[name][:-1] + bytes([before[name][-1] ^ 1]))
        assert [name in line for line in stage.verify(Silent())] == [True]
        assert stage.status().done == 0
        assert contents(released(experiment)) == before


def test_a_release_that_was_killed_goes_on_to_the_same_bytes(ready, monkeypatch):
    undisturbed = contents(released(experiment_in(ready, "release.title=T", "release.name=one")))

    def die(*_, **__):
        raise KeyboardInterrupt

    experiment = experiment_in(ready, "release.title=T", "release.name=one", f"release.output={ready}/killed")
    for place in ("check.self_check", "card.model_card"):
        with monkeypatch.context() as patch:
            patch.setattr(f"pipeline.release.{place}", die)
            with pytest.raises(KeyboardInterrupt):
                released(experiment)
        assert make_stage("release", experiment).status().done == 0
    bundle = released(experiment)
    assert contents(bundle) == undisturbed
    assert sorted(path.name for path in bundle.parent.iterdir()) == ["one", "run.json"]


def test_what_is_asked_for_is_carried(ready):
    lean = read_json(released(experiment_in(ready, "release.max_backbone_mb=1")) / CONFIG)
    assert not lean["backbone"]["carried"]  # nobody says the licence of random weights
    for settings in (["release.include_backbone=yes"], ["release.backbone_licence=MIT"]):
        bundle = released(experiment_in(ready, *settings))
        assert read_json(bundle / CONFIG)["backbone"]["carried"]
        assert "carried in this bundle" in (bundle / CARD).read_text()
    other = released(experiment_in(ready, "release.seed=5"))
    assert read_json(other / CONFIG)["head"]["seed"] == 5


def test_results_of_another_model_are_not_released(ready):
    experiment = experiment_in(ready, "release.title=tampered")
    table = make_stage("evaluate", experiment).folder / "rows" / "image_folder.npz"
    before = table.read_bytes()
    with np.load(table) as rows:
        columns = {name: values * 2 if name.startswith("uncertainty") else values for name, values in rows.items()}
    try:
        np.savez(table, **columns)
        with pytest.raises(UserError, match="differ from the evaluated ones by up to 5"):
            released(experiment)
    finally:
        table.write_bytes(before)
    assert make_stage("release", experiment).status().done == 0


def test_what_is_missing_is_said(ready, tmp_path):
    with pytest.raises(UserError, match=r"release\.seed=9: no such head\. Valid: 4, 5"):
        make_stage("release", experiment_in(ready, "release.seed=9")).plan()
    with pytest.raises(UserError, match="trains heads at several points, and a release is one head"):
        make_stage("release", experiment_in(ready, "train_head.sweep.base_lr=[1e-3,2e-3]")).plan()
    with pytest.raises(UserError, match="Run: submit stage=train_head"):
        make_stage("release", experiment_in(ready, f"runs_root={tmp_path}")).plan()
