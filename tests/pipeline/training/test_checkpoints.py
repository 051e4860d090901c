"""Heads on disk: what is refused, and that the same head gives the same bytes."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import load_file

from pipeline.errors import UserError
from pipeline.heads import make_head
from pipeline.heads.base import LinearClassifier, Summary
from pipeline.training.checkpoints import load_head, save_head

SUMMARY = Summary(
    width=4,
    rows=9,
    num_classes=3,
    class_names=("a", "b", "ü"),
    mean_D=torch.arange(4.0),
    scale=0.3,
    classifier=LinearClassifier(weight_CD=torch.ones(3, 4), bias_C=torch.zeros(3)),
)


def saved(folder, kind="loss_prediction", **options):
    head = make_head({"kind": kind, **options}, seed=2)
    head.prepare(SUMMARY)
    save_head(folder, head, SUMMARY, store="ab" * 32, training={"steps": 3}, metrics={"loss": 0.25})
    return head


def test_the_record_says_what_the_head_is(tmp_path):
    saved(tmp_path, hidden=8)
    record = json.loads((tmp_path / "head.json").read_text(encoding="utf-8"))
    assert record["head"] == {
        "kind": "loss_prediction",
        "objective": "ranking",
        "margin": 0.1,
        "leeway": 0.0,
        "group": 2,
        "hidden": 8,
        "layers": 2,
    }
    assert record["seed"] == 2
    assert record["store"] == {"digest": "ab" * 32}
    assert record["summary"]["class_names"] == ["a", "b", "ü"]
    assert record["metrics"] == {"loss": 0.25}


def test_the_classifier_travels_only_with_heads_that_need_it(tmp_path):
    saved(tmp_path / "trained", hidden=8)
    saved(tmp_path / "entropy", kind="classifier_entropy")
    assert "summary.classifier.weight_CD" not in load_file(tmp_path / "trained" / "head.safetensors")
    tensors = load_file(tmp_path / "entropy" / "head.safetensors")
    assert set(tensors) == {"summary.mean_D", "summary.classifier.weight_CD", "summary.classifier.bias_C"}
    assert torch.equal(load_head(tmp_path / "entropy").weight_CD, torch.ones(3, 4))


def test_the_same_head_gives_the_same_bytes(tmp_path):
    for name in ("one", "two"):
        saved(tmp_path / name, hidden=8)
    for file in ("head.json", "head.safetensors"):
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes()


def test_a_flipped_bit_is_refused(tmp_path):
    saved(tmp_path, hidden=8)
    path = tmp_path / "head.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(UserError, match=r"not those that head\.json speaks of"):
        load_head(tmp_path)


def test_a_head_without_its_record_does_not_exist(tmp_path):
    saved(tmp_path, hidden=8)
    (tmp_path / "head.json").unlink()
    with pytest.raises(UserError, match=r"no head at .*stage=train_head"):
        load_head(tmp_path)
