"""The pack stage: units, resuming, refusals, and datasets that need no packing."""

import contextlib
import io
import re

import numpy as np
import pytest
from PIL import Image

from pipeline.config import parse
from pipeline.errors import UserError
from pipeline.images.packing import open_packed
from pipeline.progress import Silent
from stages.base import Experiment, stage_class
from stages.pack import Pack


@pytest.fixture
def images(tmp_path):
    for number in range(30):
        folder = tmp_path / "images" / f"class{number % 3}"
        folder.mkdir(parents=True, exist_ok=True)
        pixels = np.random.default_rng(number).integers(0, 256, (5, 5, 3), dtype=np.uint8)
        buffer = io.BytesIO()
        Image.fromarray(pixels).save(buffer, "PNG")
        (folder / f"{number}.png").write_bytes(buffer.getvalue())
    (tmp_path / "images" / "notes.txt").write_text("x")
    return tmp_path / "images"


@pytest.fixture
def stage(tmp_path, images):
    """``stage(dataset={…}, min_tars=4)``; by default the folder of images in four tars."""

    def make(dataset=None, **config):
        experiment = Experiment(
            name="test",
            data_root=tmp_path,
            runs_root=tmp_path / "runs",
            dataset=dataset or {"kind": "image_folder", "name": "image_folder", "root": str(images)},
            backbone={},
            head={},
            downstream={},
            compare={},
            stages={"pack": parse(Pack.Config, {"min_tars": 4, **config}, "pack")},
        )
        return stage_class("pack")(experiment)

    return make


def run(stage):
    stage.prepare()
    for unit in stage.plan():
        stage.run(unit, Silent())
    stage.finish(Silent())


def test_from_plan_to_summary(stage):
    pack = stage()
    assert pack.inputs() == ()
    units = pack.plan()
    assert not pack.folder.exists()  # planning writes nothing
    assert [(unit.id, unit.samples) for unit in units] == [("00000", 7), ("00001", 8), ("00002", 7), ("00003", 8)]
    assert (pack.status().done, pack.status().total) == (0, None)
    pack.prepare()
    pack.run(units[2], Silent())
    status = stage().status()
    assert (status.done, status.total, status.samples) == (1, 4, 7)
    assert [unit.id for unit in stage().plan()] == ["00000", "00001", "00003"]
    run(stage())
    assert stage().plan() == []
    first, left_out, folder = stage().summary()
    assert "30 images of 3 classes in 4 tars" in first
    assert left_out == "pack: left out 1: no image by its extension"
    assert str(pack.folder) in folder
    assert sum(unit.samples for unit in open_packed(pack.folder).units) == 30


def test_the_folder_depends_on_what_is_packed_and_not_on_where(stage, tmp_path):
    assert stage().folder != stage(min_tars=5).folder
    assert stage().digest == stage(output=str(tmp_path / "elsewhere")).digest
    assert stage(output=str(tmp_path / "elsewhere")).folder == tmp_path / "elsewhere"


def test_another_config_in_the_same_folder_is_refused(stage, tmp_path):
    output = str(tmp_path / "out")
    run(stage(output=output))
    with pytest.raises(UserError, match=r"config\.min_tars: 4 → 5"):
        stage(output=output, min_tars=5).prepare()


@pytest.mark.parametrize("name", ["manifest.json", "plan.json", "records/00001.json"])
@pytest.mark.parametrize("how", ["cut", "changed"])
def test_a_damaged_record_is_named_and_made_again(stage, name, how):
    """Who asks how far it is meets no error but one that says so."""
    pack = stage()
    run(pack)
    path = pack.folder / name
    good = path.read_bytes()
    path.write_bytes(good[: len(good) // 2] if how == "cut" else re.sub(rb"\d\d", b"77", good, count=1))
    if (name, how) == ("plan.json", "changed"):  # it is read no more once there is a manifest, and was compared before
        assert stage().status().total == 4
        return
    with contextlib.suppress(UserError):
        stage().status()
    problems = stage().verify(Silent())
    assert problems == [] if name == "plan.json" else name in problems[0]
    run(stage())
    assert (pack.folder / "manifest.json").exists()
    assert name == "plan.json" or path.read_bytes() == good
    assert (stage().verify(Silent()), stage().status().done) == ([], 4)


def test_verify_and_mend(stage):
    pack = stage()
    run(pack)
    assert pack.verify(Silent()) == []
    bad = pack.folder / "tars/00002.tar"
    before = bad.read_bytes()
    bad.write_bytes(before[:-1] + b"\x01")
    (line,) = pack.verify(Silent())
    assert line.startswith("unit 00002: ")
    assert str(bad) in line
    assert [unit.id for unit in stage().plan()] == ["00002"]
    run(stage())
    assert bad.read_bytes() == before
    assert stage().verify(Silent()) == []


def test_missing_images_are_said(stage, tmp_path):
    pack = stage(dataset={"kind": "image_folder", "root": str(tmp_path / "gone")})
    with pytest.raises(UserError, match="no folder at"):
        pack.plan()


def test_a_range_is_checked():
    with pytest.raises(UserError, match=r"pack\.min_tars"):
        parse(Pack.Config, {"min_tars": 0}, "pack")


def test_tars_are_not_packed_again(stage, tmp_path):
    run(stage())
    packed = stage().folder
    given = stage(dataset={"kind": "webdataset", "root": str(packed)})
    run(given)
    assert given.plan() == []
    assert given.status().total == 0
    assert given.verify(Silent()) == []
    assert "nothing to do" in given.summary()[0]
    with pytest.raises(UserError, match="no folder at"):
        stage(dataset={"kind": "webdataset", "root": str(tmp_path / "gone")}).plan()
