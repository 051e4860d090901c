"""Of the real configs: a recipe reaches training and head, and what is given goes before."""

from __future__ import annotations

import pytest

from cluster.compose import compose, options
from pipeline.training.config import TrainingConfig


def decided(*overrides: str) -> dict[str, float]:
    experiment = compose(overrides).experiment
    training = experiment.stages["train_head"]
    keys = ("batch_size", "base_lr", "length")
    return {key: getattr(training, key) for key in keys} | {"group": experiment.head["group"]}


def test_the_paper_is_the_default_and_says_what_training_does_without_it() -> None:
    paper = decided()
    assert paper == decided("recipe=paper")
    assert {key: paper[key] for key in paper if key != "group"} == {
        key: getattr(TrainingConfig(), key) for key in ("batch_size", "base_lr", "length")
    }


@pytest.mark.parametrize("experiment", ["demo", "pretrained_visual_uncertainties"])
def test_fast_is_fewer_samples_of_whatever_the_experiment_takes(experiment: str) -> None:
    paper, fast = decided(f"experiment={experiment}"), decided(f"experiment={experiment}", "recipe=fast")
    assert {key for key in paper if paper[key] == fast[key]} == set()
    rows = [
        training.total_steps * training.batch_size
        for training in (
            compose([f"experiment={experiment}", f"recipe={name}"]).experiment.stages["train_head"]
            for name in options("recipe")
        )
    ]
    assert rows[0] == pytest.approx(rows[1] * fast["length"], rel=0.01)  # fast before paper, by their names
    assert decided(f"experiment={experiment}", "recipe=fast", "++train_head.batch_size=64")["batch_size"] == 64
