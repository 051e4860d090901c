"""The loop: it learns, and its result depends on nothing but the store and the configs."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr

from pipeline.errors import UserError
from pipeline.files import read_json
from pipeline.heads import make_head
from pipeline.heads.base import LinearClassifier
from pipeline.progress import Silent
from pipeline.representation_store.reader import BatchReader, Reading
from pipeline.training.checkpoints import load_head
from pipeline.training.config import TrainingConfig
from pipeline.training.cut import PARTS
from pipeline.training.log import TrainingLog
from pipeline.training.loop import TrainingDivergedError, train
from pipeline.training.schedule import learning_rate
from pipeline.training.summary import summarise
from pipeline.training.sweep import seed_folder

HEAD = {"kind": "loss_prediction", "hidden": 16}


def run(store, folder, *, head=HEAD, progress=None, classifier=None, **options):
    config = TrainingConfig(**{"steps": 30, "batch_size": 64, "log_every": 10, "device": "cpu", **options})
    summary = summarise(store, classifier)
    train(store=store, head=head, config=config, summary=summary, folder=folder, progress=progress or Silent())
    return config


def weights(folder, seed=0):
    return (seed_folder(folder, seed) / "head.safetensors").read_bytes()


@pytest.mark.parametrize("objective", ["ranking", "l2"])
def test_the_head_learns_what_can_be_learnt(store, tmp_path, objective):
    run(store, tmp_path / "run", head={**HEAD, "objective": objective}, steps=300, base_lr=1e-2, validation_share=0.2)
    head = load_head(tmp_path / "run" / "seed-0")
    new_BD = torch.randn(500, 16, generator=torch.Generator().manual_seed(9))
    with torch.no_grad():
        u_B = head(new_BD).uncertainty_B
    assert spearmanr(u_B.numpy(), new_BD[:, 0].numpy()).statistic > 0.9
    metrics = read_json(tmp_path / "run" / "seed-0" / "head.json")["metrics"]
    assert metrics["validation_rank_correlation"] > 0.9


def test_one_step_is_torchs_adamw_on_the_papers_groups(store, tmp_path):
    config = run(store, tmp_path / "run", steps=3)
    head = make_head(HEAD)
    head.prepare(summarise(store))
    weights_, biases = (
        [p for name, p in head.named_parameters() if name.endswith(kind)] for kind in ("weight", "bias")
    )
    groups = [{"params": weights_, "weight_decay": 1e-4}, {"params": biases, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, betas=(0.8, 0.95), foreach=False)
    reader = BatchReader(store, head.needs, Reading(batch_size=64))
    for step, batch in enumerate(reader.batches(0, 3)):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(config, step)
        optimizer.zero_grad()
        head.loss(batch).total.backward()
        optimizer.step()
    for name, value in load_head(tmp_path / "run" / "seed-0").state_dict().items():
        torch.testing.assert_close(value, head.state_dict()[name], rtol=1e-5, atol=1e-7)


def test_members_side_by_side_are_what_they_are_alone(store, tmp_path):
    run(store, tmp_path / "both", seeds=(3, 7))
    run(store, tmp_path / "alone", seeds=(7,))
    assert weights(tmp_path / "both", 7) == weights(tmp_path / "alone", 7)
    assert weights(tmp_path / "both", 3) != weights(tmp_path / "both", 7)


def test_nothing_operational_changes_the_weights(store, tmp_path):
    run(store, tmp_path / "a")
    run(store, tmp_path / "b", memory_gb=1e-9, threads=3, log_every=7, checkpoint_seconds=0)
    assert weights(tmp_path / "a") == weights(tmp_path / "b")
    for option in ({"data_seed": 1}, {"window": 32}, {"validation_share": 0.3}):
        run(store, tmp_path / "c", **option)
        assert weights(tmp_path / "c") != weights(tmp_path / "a")


def test_a_batch_in_parts_gives_the_same_weights_up_to_rounding(store, tmp_path):
    run(store, tmp_path / "whole", steps=10)
    run(store, tmp_path / "parts", steps=10, accumulate=4)
    whole, parts = load_head(tmp_path / "whole" / "seed-0"), load_head(tmp_path / "parts" / "seed-0")
    for name, value in whole.state_dict().items():
        torch.testing.assert_close(value, parts.state_dict()[name], rtol=1e-3, atol=1e-5)


def test_the_callers_random_state_is_kept(store, tmp_path):
    torch.manual_seed(1)
    before = torch.random.get_rng_state()
    run(store, tmp_path / "run", steps=3)
    assert torch.equal(torch.random.get_rng_state(), before)


class Watcher(Silent):
    """Remembers its bar."""

    def bar(self, description, total, unit, *, initial=0):
        self.facts, self.initial, self.total, self.done, self.closed = [], initial, total, initial, False
        return self

    def advance(self, count=1, **shown):
        self.done += count
        self.facts += shown.items()

    def close(self):
        self.closed = True


def test_log_and_progress(store, tmp_path):
    watcher = Watcher()
    config = run(store, tmp_path / "run", steps=25, progress=watcher)
    assert (watcher.initial, watcher.done, watcher.total, watcher.closed) == (0, 1600, 1600, True)
    assert [name for name, _ in watcher.facts] == ["loss"] * 3
    rows = TrainingLog(tmp_path / "run" / "seed-0" / "log.csv").rows()
    assert [row["step"] for row in rows] == [10, 20, 25]
    assert [row["samples"] for row in rows] == [640, 1280, 1600]
    assert [row["lr"] for row in rows] == [learning_rate(config, step) for step in (9, 19, 24)]
    assert set(rows[0]) == {"step", "samples", "lr", "loss", "in_order", "samples_per_second"}
    record = read_json(tmp_path / "run" / "seed-0" / "head.json")
    assert record["metrics"] == {"loss": rows[-1]["loss"], "in_order": rows[-1]["in_order"]}
    assert record["training"]["steps"] == 25
    assert "device" not in record["training"]
    assert record["summary"]["width"] == 16
    assert record["summary"]["rows"] == 297


@pytest.mark.parametrize("kind", ["inverse_norm", "random", "classifier_entropy"])
def test_baselines_are_prepared_and_saved(store, tmp_path, kind):
    classifier = LinearClassifier(weight_CD=torch.randn(3, 16), bias_C=torch.zeros(3))
    run(store, tmp_path / "run", head={"kind": kind}, seeds=(0, 1), classifier=classifier)
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == ["seed-0", "seed-1"]
    head = load_head(tmp_path / "run" / "seed-1")
    x_BD = torch.randn(5, 16)
    expected = make_head({"kind": kind}, seed=1)
    expected.prepare(summarise(store, classifier))
    assert torch.equal(head(x_BD).uncertainty_B, expected(x_BD).uncertainty_B)


def test_divergence_stops_with_step_seed_and_keys(store, tmp_path, monkeypatch):
    from pipeline.heads.loss_prediction import LossPrediction

    original = LossPrediction.loss

    def broken(self, batch):
        output = original(self, batch)
        if self.seed == 5:
            self.calls = getattr(self, "calls", 0) + 1
        if getattr(self, "calls", 0) == 13 * PARTS + 2:  # the second part of the batch of step 13
            output = type(output)(total=output.total * float("nan"), parts=output.parts)
        return output

    monkeypatch.setattr(LossPrediction, "loss", broken)
    with pytest.raises(TrainingDivergedError, match="diverged at step 13 for seed 5: loss nan") as caught:
        run(store, tmp_path / "run", seeds=(0, 5), checkpoint_seconds=0)
    head = make_head(HEAD)
    rows, _ = BatchReader(store, head.needs, Reading(batch_size=64)).sampler.batch(13)
    assert f"begins with {store.keys()[rows[0]]} (row {rows[0]})" in str(caught.value)
    monkeypatch.undo()
    run(store, tmp_path / "run", seeds=(0, 5))  # goes on from step 10, which was good
    run(store, tmp_path / "fresh", seeds=(0, 5))
    assert weights(tmp_path / "run", 5) == weights(tmp_path / "fresh", 5)


def test_an_unknown_device_is_named(store, tmp_path):
    with pytest.raises(UserError, match="'gpu' is no device"):
        run(store, tmp_path / "run", device="gpu")


def test_the_summary_is_that_of_the_rows(store):
    summary = summarise(store)
    embedding = store.load("embedding").astype(np.float64)
    rows, views = BatchReader(store, make_head(HEAD).needs, Reading(batch_size=297, window=1 << 14)).sampler.batch(0)
    seen = embedding[rows, views[:, 0]]
    np.testing.assert_allclose(summary.mean_D.numpy(), seen.mean(axis=0), atol=1e-6)
    assert summary.scale == pytest.approx(np.sqrt(np.mean((seen - seen.mean(axis=0)) ** 2)), rel=1e-6)
    assert (summary.width, summary.rows, summary.num_classes, summary.class_names) == (16, 297, 3, ("a", "b", "c"))
