"""State that follows the batches, and how far training is: the same alone, stacked, averaged, clipped and resumed."""

from __future__ import annotations

import pytest
import torch

from pipeline.errors import UserError
from pipeline.heads import make_head
from pipeline.training.checkpoints import load_head
from pipeline.training.config import TrainingConfig
from pipeline.training.engines.deepspeed import DeepSpeed
from pipeline.training.members import Member
from pipeline.training.once import make_reader
from pipeline.training.summary import summarise
from pipeline.training.sweep import seed_folder
from pipeline.world import World
from tests.pipeline.training.test_resume import Stop, StopAt, result
from tests.pipeline.training.test_teams import run
from tests.toys import toy_heads

HEAD = {"kind": "toy_running"}


@pytest.fixture(autouse=True)
def found():
    with toy_heads():
        yield


@pytest.mark.parametrize("options", [{}, {"ema": 0.9, "clip_norm": 1e-3, "weight_decay": 0.5}, {"batched": "on"}])
def test_it_is_the_recursion_over_the_batches(store, tmp_path, options):
    run(store, tmp_path, head=HEAD, precision="fp32", accumulate=3, **options)
    config = TrainingConfig(steps=14, batch_size=30, device="cpu", seeds=(0, 1, 2))
    mean_D, rows = torch.zeros(16), []
    for batch in make_reader(store, make_head(HEAD).needs, config)[0].batches(0, 14):
        mean_D = 0.75 * mean_D + 0.25 * batch.representation_BVD[:, 0].mean(0)
        rows.append(batch.progress_B)
    for seed in (0, 1, 2):
        head = load_head(seed_folder(tmp_path, seed))
        torch.testing.assert_close(head.mean_D.detach(), mean_D, rtol=1e-5, atol=1e-6)
        assert head.steps.item() == pytest.approx(14)
        assert head.progress.item() == pytest.approx(13 / 14)
    assert [row_B.unique().tolist() for row_B in rows] == [[torch.tensor(step / 14).item()] for step in range(14)]


def test_a_run_that_is_cut_off_goes_on_with_the_same_bits(store, tmp_path):
    run(store, tmp_path / "straight", head=HEAD, ema=0.5)
    for step in (3, 8):
        with pytest.raises(Stop):
            run(store, tmp_path / "cut", head=HEAD, ema=0.5, progress=StopAt(step * 30))
    run(store, tmp_path / "cut", head=HEAD, ema=0.5)
    assert result(tmp_path / "cut") == result(tmp_path / "straight")


def test_deepspeed_refuses_it_with_advice(store, monkeypatch):
    monkeypatch.setattr("torch.distributed.is_initialized", lambda: True)
    head = make_head(HEAD)
    head.prepare(summarise(store))
    config = TrainingConfig(steps=1, batch_size=30, device="cpu")
    with pytest.raises(UserError, match="engine=auto"):
        DeepSpeed([Member(head, config, torch.device("cpu"))], config, World())
