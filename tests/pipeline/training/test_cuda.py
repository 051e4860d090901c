"""On a GPU: one CUDA graph a step, and several heads in one batch of computation, give what plain steps give."""

from __future__ import annotations

import pytest
import torch

from pipeline.heads.loss_prediction import LossPrediction
from pipeline.training.checkpoints import load_head
from pipeline.training.log import TrainingLog
from pipeline.training.sweep import seed_folder
from tests.pipeline.training.test_resume import Stop, StopAt
from tests.pipeline.training.test_teams import run

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

LOSS = LossPrediction.loss
FP32 = {"device": "cuda", "precision": "fp32", "log_every": 2, "ema": 0.9, "clip_norm": 1.0}


def agree(one, other, rtol=1e-3):
    for seed in (0, 1, 2):
        for name, value in load_head(seed_folder(one, seed)).state_dict().items():
            found = load_head(seed_folder(other, seed)).state_dict()[name]
            torch.testing.assert_close(found, value, rtol=rtol, atol=1e-5)
        logs = [TrainingLog(seed_folder(folder, seed) / "log.csv").rows() for folder in (one, other)]
        for ours, theirs in zip(*logs, strict=True):
            assert ours["loss"] == pytest.approx(theirs["loss"], rel=1e-3)
            assert ours["lr"] == theirs["lr"]


@pytest.mark.parametrize("batched", ["on", "off"])
@pytest.mark.parametrize("options", [{}, {"accumulate": 3}, {"memory_gb": 1e-9}])
def test_graphs_and_stacks_give_what_a_plain_run_gives(store, tmp_path, batched, options):
    run(store, tmp_path / "plain", **{**FP32, **options}, batched="off", cuda_graph="off")
    said = run(store, tmp_path / "graph", **{**FP32, **options}, batched=batched, cuda_graph="auto")
    assert said == (["train_head: 3 heads in one computation."] if batched == "on" else [])
    agree(tmp_path / "plain", tmp_path / "graph")


def test_a_run_that_is_cut_off_goes_on(store, tmp_path):
    run(store, tmp_path / "straight", **FP32)
    for step in (3, 8):
        with pytest.raises(Stop):
            run(store, tmp_path / "cut", progress=StopAt(step * 30), **FP32)
    run(store, tmp_path / "cut", **FP32)
    agree(tmp_path / "straight", tmp_path / "cut")


def test_bfloat16_is_stacked_and_recorded(store, tmp_path):
    assert run(store, tmp_path / "run", **{**FP32, "precision": "auto"}) == ["train_head: 3 heads in one computation."]


def draws(self, batch):
    output = LOSS(self, batch)
    return type(output)(total=output.total * (1 + torch.rand((), device="cuda")), parts=output.parts)


def waits(self, batch):
    output = LOSS(self, batch)
    return type(output)(total=output.total * float(batch.representation_BVD.abs().max() >= 0), parts=output.parts)


@pytest.mark.parametrize(("loss", "reason"), [(draws, "its loss draws"), (waits, "a step cannot be one CUDA graph")])
def test_what_cannot_be_recorded_is_done_plainly(store, tmp_path, monkeypatch, loss, reason):
    monkeypatch.setattr(LossPrediction, "loss", loss)
    run(store, tmp_path / "plain", **FP32, batched="off", cuda_graph="off")
    said = run(store, tmp_path / "graph", **FP32, batched="off", cuda_graph="auto")
    assert any(reason in line for line in said)
    agree(tmp_path / "plain", tmp_path / "graph")
