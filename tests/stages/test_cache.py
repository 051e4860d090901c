"""Backbones beside another one fill the folders that they would fill alone."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from cluster.compose import compose
from pipeline.errors import UserError
from pipeline.progress import Silent
from stages.base import Stage, make_stage
from tests.pipeline.caching.test_job import tree

TINY = "model: resnet10t\nweights: random\nsize: 32\nnum_classes: 0\ndevice: cpu\n"
BASE = (
    *("experiment=demo_digits", "dataset.images_per_class=1", "backbone=one"),
    *("cache.random_views=1", "cache.workers=1", "pack.min_tars=2"),
)


@pytest.fixture
def configs(tmp_path: Path) -> Path:
    folder = tmp_path / "configs" / "backbone"
    folder.mkdir(parents=True)
    (folder / "one.yaml").write_text(TINY)
    (folder / "two.yaml").write_text(TINY + "seed: 1\n")
    return tmp_path / "configs"


def stage(configs: Path, runs: Path, name: str, *overrides: str) -> Stage:
    composed = compose([*BASE, f"runs_root={runs}", *overrides], folders=[configs])
    return make_stage(name, composed.experiment)


def complete(stage: Stage) -> Sequence[str]:
    stage.prepare()
    done = [unit.id for unit in stage.plan()]
    for unit in stage.plan():
        stage.run(unit, Silent())
    stage.finish(Silent())
    return done


def test_a_backbone_beside_another_fills_its_own_folder(configs: Path, tmp_path: Path) -> None:
    both, alone = tmp_path / "both", tmp_path / "alone"
    for runs in (both, alone):
        complete(stage(configs, runs, "pack"))
    first = stage(configs, both, "cache", "cache.beside=[two]")
    assert len(complete(first)) == 2
    assert [line.split()[0] for line in first.summary()] == ["cache:"] * 4
    for backbone in ("one", "two"):
        here = stage(configs, both, "cache", f"backbone={backbone}")
        there = stage(configs, alone, "cache", f"backbone={backbone}")
        assert here.plan() == []
        complete(there)
        assert here.folder.name == there.folder.name
        assert tree(here.folder / "store") == tree(there.folder / "store")


def test_what_is_broken_in_one_store_is_made_again_in_that_one_alone(configs: Path, tmp_path: Path) -> None:
    complete(stage(configs, tmp_path, "pack"))
    complete(stage(configs, tmp_path, "cache", "cache.beside=[two]"))
    other = stage(configs, tmp_path, "cache", "backbone=two").folder / "store"
    whole = tree(other)
    shard = other / "embedding" / "c" / "1" / "0" / "0" / "0"
    data = bytearray(shard.read_bytes())
    data[100] ^= 1
    shard.write_bytes(data)
    [problem] = stage(configs, tmp_path, "cache", "cache.beside=[two]").verify(Silent())
    assert "unit 000001" in problem
    again = stage(configs, tmp_path, "cache", "cache.beside=[two]")
    assert complete(again) == ["000001"]
    assert tree(other) == whole


def test_a_backbone_that_has_no_file_is_named(configs: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"unknown backbone 'three'.*one, .*two"):
        stage(configs, tmp_path, "cache", "cache.beside=[three]")
    with pytest.raises(UserError, match=r"beside"):
        stage(configs, tmp_path, "cache", "+beside.two.seed=3")
    changed = stage(configs, tmp_path, "cache", "cache.beside=[two]", "beside.two.seed=3")
    assert changed.experiment.beside["two"]["seed"] == 3


def test_rows_made_again_are_those_that_are_stored_unless_the_image_is_another(configs: Path, tmp_path: Path) -> None:
    complete(stage(configs, tmp_path, "pack"))
    cache = stage(configs, tmp_path, "cache")
    complete(cache)
    whole = tree(cache.folder / "store")
    assert stage(configs, tmp_path, "cache").recompute(7, 0, Silent()) == []
    tars = sorted(cache.before("pack").folder.glob("tars/*.tar"))
    one, two = (path.read_bytes() for path in tars)
    # the other tar's images under this one's keys: the bytes of the store are sound, and wrong
    with tarfile.open(fileobj=io.BytesIO(two)) as other:
        pictures = [other.extractfile(m).read() for m in other if m.name.endswith(".png")]  # type: ignore[union-attr]
    with tarfile.open(fileobj=io.BytesIO(one)) as source, tarfile.open(tars[0], "w") as copy:
        for member in source:
            data = source.extractfile(member).read()  # type: ignore[union-attr]
            data = pictures.pop() if member.name.endswith(".png") else data
            member.size = len(data)
            copy.addfile(member, io.BytesIO(data))
    again = stage(configs, tmp_path, "cache")
    problems = again.recompute(1000, 0, Silent())
    assert problems
    assert all("unit 000000" in problem and "differs from the recomputed" in problem for problem in problems)
    assert [unit.id for unit in again.plan()] == ["000000"]
    tars[0].write_bytes(one)
    assert complete(stage(configs, tmp_path, "cache")) == ["000000"]
    assert tree(cache.folder / "store") == whole
