import json
from pathlib import Path

import pytest
import torch

from pipeline.errors import UserError
from pipeline.release import bundle as bundles
from pipeline.release.bundle import CARD, CONFIG, WEIGHTS, Bundle, read_bundle, verify_bundle, write_bundle


def example() -> Bundle:
    shared = torch.arange(6.0).reshape(2, 3)
    return Bundle(
        config={"head": {"kind": "inverse_norm"}, "classes": ["été", "b"]},
        tensors={
            "head.a.weight": shared,
            "head.a.tied": shared,
            "head.b": torch.tensor(3, dtype=torch.int64),
            "summary.mean_D": torch.tensor([1.5, -0.0]),
            "backbone.half": torch.ones(4, dtype=torch.bfloat16),
        },
    )


@pytest.fixture
def folder(tmp_path):
    write_bundle(tmp_path / "model", example(), "# Card\n")
    return tmp_path / "model"


def test_what_is_written_is_read(folder):
    read = read_bundle(folder)
    wanted = example().tensors
    assert read.tensors.keys() == wanted.keys()
    for name, tensor in wanted.items():
        assert read.tensors[name].dtype == tensor.dtype
        assert torch.equal(read.tensors[name], tensor)
    assert read.part("head").keys() == {"a.weight", "a.tied", "b"}
    assert {key: read.config[key] for key in ("head", "classes")} == example().config
    assert sorted(path.name for path in folder.iterdir()) == sorted([WEIGHTS, CONFIG, CARD])
    assert verify_bundle(folder) == []


def test_the_same_bundle_gives_the_same_bytes_and_replaces_an_older_one(folder, tmp_path):
    other = tmp_path / "other"
    write_bundle(other, Bundle(config={}, tensors={}), "old")
    write_bundle(other, example(), "# Card\n")
    for name in (WEIGHTS, CONFIG, CARD):
        assert (other / name).read_bytes() == (folder / name).read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "other"]


@pytest.mark.parametrize("name", [WEIGHTS, CONFIG, CARD])
@pytest.mark.parametrize("place", [0, 0.3, 0.9])
def test_a_flipped_bit_is_found_and_the_file_named(folder, name, place):
    path = folder / name
    data = bytearray(path.read_bytes())
    data[int(place * len(data))] ^= 1
    path.write_bytes(bytes(data))
    assert any(name in line for line in verify_bundle(folder))
    if name != CARD:
        with pytest.raises(UserError, match=name):
            read_bundle(folder)


def test_a_truncated_or_missing_file_is_named(folder):
    (folder / WEIGHTS).write_bytes((folder / WEIGHTS).read_bytes()[:-1])
    with pytest.raises(UserError, match=WEIGHTS):
        read_bundle(folder)
    (folder / WEIGHTS).unlink()
    with pytest.raises(UserError, match=f"{WEIGHTS} is missing"):
        read_bundle(folder)


def test_what_is_no_bundle_is_refused(tmp_path):
    with pytest.raises(UserError, match="no released model"):
        read_bundle(tmp_path)
    (tmp_path / CONFIG).write_text("[1]")
    with pytest.raises(UserError, match="does not describe a released model"):
        read_bundle(tmp_path)


def test_a_place_beside_the_bundle_says_where_it_is(folder):
    for place in (folder.parent, folder / "config.json"):
        with pytest.raises(UserError, match=f"Did you mean {folder}"):
            read_bundle(place)
    with pytest.raises(UserError, match="a folder of this machine"):
        read_bundle(Path("s3://bucket/model"))


def test_another_version_is_refused(folder, monkeypatch):
    monkeypatch.setattr(bundles, "VERSION", bundles.VERSION + 1)
    with pytest.raises(UserError, match=f"format version {bundles.VERSION - 1}"):
        read_bundle(folder)


def test_an_edited_config_is_refused(folder):
    config = json.loads((folder / CONFIG).read_text())
    config["head"]["kind"] = "random"
    (folder / CONFIG).write_text(json.dumps(config))
    with pytest.raises(UserError, match="edited"):
        read_bundle(folder)


def test_a_writer_that_was_killed_leaves_the_old_bundle_and_is_swept(folder, monkeypatch):
    before = {path.name: path.read_bytes() for path in folder.iterdir()}

    def die(path, value):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(bundles, "write_json", die)
        with pytest.raises(KeyboardInterrupt):
            write_bundle(folder, Bundle(config={}, tensors={}), "new")
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    write_bundle(folder, example(), "# Card\n")
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]
