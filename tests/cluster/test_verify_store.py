"""A store that really ran, damaged in many places at once: `submit verify` names each, and its commands repair them."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from cluster.submit import main
from tests.pipeline.representation_store.conftest import tree

CHAIN = "stage=[pack,cache,probe]"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The words of a command, after a store was made with it."""
    root = tmp_path_factory.mktemp("damaged")
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    for place in range(16):
        path = root / "images" / f"class{place % 2}" / f"{place}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (32, 32, 3), np.uint8)).save(path)
    settings = [
        "name=small",
        f"runs_root={root}/runs",
        "dataset=image_folder",
        f"dataset.root={root}/images",
        "pack.min_tars=2",
        "cache.random_views=0",
    ]
    settings += ["cache.dtype=int8", "cache.workers=1", "probe.folds=2", "probe.l2=[0.1]"]
    settings += ["backbone=vit_small_random", "backbone.model=test_vit", "++backbone.num_classes=0"]
    settings += ["++backbone.size=32"]
    assert main([CHAIN, *settings]) == 0
    return settings


@pytest.fixture
def settings(made: list[str], tmp_path: Path) -> Iterator[list[str]]:
    """Those words, and all that was made; what is done to it is undone."""
    shutil.copytree(runs_of(made), tmp_path / "runs")
    yield made
    shutil.rmtree(runs_of(made))
    shutil.copytree(tmp_path / "runs", runs_of(made))


def runs_of(settings: list[str]) -> Path:
    return Path(settings[1].removeprefix("runs_root="))


def store_of(settings: list[str]) -> Path:
    (store,) = runs_of(settings).glob("cache-*/store")
    return store


def damage(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)


def test_everything_that_is_damaged_is_named_and_repaired_by_the_commands_it_says(
    settings: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    store = store_of(settings)
    content = {name: found for name, found in tree(store).items() if not name.startswith("telemetry")}
    damaged = [
        "run.json",
        "scale/zarr.json",
        "zarr.json",
        "commits/000001.json",
        "embedding/c/0/0/0/0",
        "task_loss/c/1/0/0",
        "probe/commits/000000.json",
        "probe/run.json",
    ]
    for name in [*damaged, "telemetry/000000.json"]:
        damage(store / name)
    damage(store.parent / "run.json")
    capsys.readouterr()
    assert main(["verify", CHAIN, *settings]) == 1
    said = capsys.readouterr().out
    for name in damaged:
        assert f"{store / name}" in said, name
    assert f"{store.parent / 'run.json'} is damaged" in said
    commands = [line.strip() for line in said.partition("this repairs it:")[2].splitlines() if line.strip()]
    assert [shlex.split(command)[1] for command in commands] == ["stage=cache", "stage=probe"]
    for command in commands:
        assert main(shlex.split(command)[1:]) == 0
    assert main(["verify", CHAIN, *settings]) == 0
    after = tree(store)
    assert {name: after[name] for name in content} == content


def test_no_verb_ends_in_a_traceback_over_a_damaged_record(
    settings: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    record = store_of(settings) / "run.json"
    damage(record)
    for verb in (["status"], ["plan"], [], ["verify"]):
        for stage in ("stage=train_head", "stage=probe", "stage=cache"):
            capsys.readouterr()
            main([*verb, stage, *settings])
            said = "".join(capsys.readouterr())
            assert said
            if stage == "stage=cache":
                assert f"{record} is damaged" in said or f"{record}: the record is damaged" in said
