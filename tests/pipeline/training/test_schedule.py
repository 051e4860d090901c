"""The paper's schedule, by its own numbers."""

from __future__ import annotations

import pytest

from pipeline.config import parse
from pipeline.errors import UserError
from pipeline.training.config import TrainingConfig
from pipeline.training.schedule import learning_rate


def test_the_papers_run():
    config = TrainingConfig()
    assert config.total_steps == 44_922  # 460 · 200,000 / 2,048, rounded up
    assert config.peak_lr == pytest.approx(0.0028, abs=5e-5)
    warmup = 25 * 200_000 / 2048
    assert learning_rate(config, 0) == 1e-4
    assert learning_rate(config, round(warmup / 2)) == pytest.approx((1e-4 + config.peak_lr) / 2, rel=1e-3)
    assert learning_rate(config, round(warmup)) == pytest.approx(config.peak_lr, rel=1e-3)
    middle = round((44_921 + warmup) / 2)
    assert learning_rate(config, middle) == pytest.approx(config.peak_lr / 2, rel=1e-3)
    assert learning_rate(config, 44_921) == pytest.approx(1e-8)


def test_the_rate_rises_and_then_falls_and_keeps_its_shape_with_steps():
    config = TrainingConfig(steps=400)
    rates = [learning_rate(config, step) for step in range(400)]
    top = rates.index(max(rates))
    assert top == 22  # 400 · 25 / 460 = 21.7
    assert rates[: top + 1] == sorted(rates[: top + 1])
    assert rates[top:] == sorted(rates[top:], reverse=True)
    assert rates[-1] == pytest.approx(1e-8)


@pytest.mark.parametrize(
    ("given", "steps"),
    [
        ({"samples": 61_440}, 30),
        ({"samples": 61_441}, 31),
        ({"samples": 61_440, "batch_size": 512}, 120),
        ({"samples": 61_440, "batch_size": 512, "length": 0.25}, 30),
        ({"length": 0.5}, 22_461),
        ({"samples": 7, "steps": 400, "length": 0.01}, 4),
        ({"length": 1e-9}, 1),
    ],
)
def test_how_long_it_takes(given, steps):
    assert TrainingConfig(**given).total_steps == steps


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_very_short_runs_have_a_rate(steps):
    config = TrainingConfig(steps=steps)
    assert all(1e-8 <= learning_rate(config, step) <= config.peak_lr for step in range(steps))


def test_without_warm_up_the_first_rate_is_the_peak():
    config = TrainingConfig(steps=10, warmup_episodes=0, batch_size=256)
    assert learning_rate(config, 0) == 1e-3


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"seeds": [1, 1]}, "seeds must differ"),
        ({"seeds": []}, "train_head.seeds"),
        ({"sweep": {"base_lr": [1e-3, 1e-3]}}, "values of base_lr must differ"),
        ({"sweep": {"base_lr": [0]}}, r"train_head.sweep.base_lr.0"),
        ({"base_lr": float("inf")}, r"train_head\.base_lr: Input should be a finite number \(got inf\)"),
        ({"betas": [float("nan"), 0.9]}, r"train_head\.betas\.0: Input should be a finite number \(got nan\)"),
        ({"betas": [0.9, 1]}, r"train_head\.betas\.1: Input should be less than 1 \(got 1\)"),
        ({"seeds": 3}, r"train_head\.seeds: write a list, e\.g\. train_head\.seeds=\[3\] \(got 3\)"),
        ({"seeds": []}, r"train_head\.seeds: needs at least 1 item in its list \(got \[\]\)"),
        ({"sweep": 3}, r"train_head\.sweep: must be keys and values, not 3; e\.g\. train_head\.sweep\.<key>=<value>"),
        (
            {"sweep": {"bas_lr": [0.1]}},
            r"train_head\.sweep\.bas_lr: unknown key\. Did you mean 'base_lr'\? Valid: base_lr, weight_decay\.",
        ),
        ({"validate_every": 5}, "set validation_share"),
        ({"ema": 1.0}, "train_head.ema"),
        ({"clip_norm": 0}, "train_head.clip_norm"),
        ({"warmup_episodes": 460}, "must be less than episodes"),
        ({"validation_share": 1.0}, "train_head.validation_share"),
        ({"stps": 3}, "Did you mean 'steps'"),
    ],
)
def test_wrong_values_are_named(wrong, said):
    with pytest.raises(UserError, match=said):
        parse(TrainingConfig, wrong, "train_head")


def test_a_wrong_seed_is_said_once_and_no_list_is_called_too_short() -> None:
    with pytest.raises(UserError) as caught:
        parse(TrainingConfig, {"seeds": [-1]}, "train_head")
    assert str(caught.value) == "train_head.seeds.0: Input should be greater than or equal to 0 (got -1)"
    with pytest.raises(UserError, match=r"train_head\.seeds: .* at least 1 item in its list"):
        parse(TrainingConfig, {"seeds": []}, "train_head")
