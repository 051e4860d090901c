"""The benchmark measures whatever head is found; the numbers themselves are for a quiet machine."""

from __future__ import annotations

import subprocess

import pytest
import torch

from benchmarks import head_costs
from pipeline.heads.base import Needs

SIZES = {"batch": 8, "width": 6, "classes": 5, "accumulate": 2}


@pytest.fixture(autouse=True)
def short(monkeypatch):
    monkeypatch.setattr(head_costs, "ENOUGH", 0.0)


@pytest.mark.parametrize("name", ["loss_prediction", "elk"])
def test_a_step_is_measured_with_the_heads_own_settings(name):
    found = head_costs.measure(name, **SIZES)
    assert found["cpu_s"] > 0
    assert found["peak_mb"] >= found["before_mb"] > 50
    assert found["parameters_m"] > 0.2


@pytest.mark.parametrize(
    "needs",
    [
        Needs(labels=True, views=2, progress=True),
        Needs(labels=True, sampling="class_balanced", rows_per_class=3),
        Needs(labels=True, sampling="triplets", negatives=2),
    ],
)
def test_a_made_up_batch_is_what_the_needs_say(needs):
    batch = head_costs.batch_of(needs, 11, 6, 5)
    assert batch.representation_BVD.shape == (11 - 11 % needs.group, needs.views, 6)
    assert (batch.progress_B is not None) == needs.progress
    groups = batch.label_B.view(-1, needs.group)
    if needs.sampling != "uniform":
        positives = 2 if needs.sampling == "triplets" else needs.group
        assert (groups[:, :positives] == groups[:, :1]).all()
        assert (groups[:, positives:] != groups[:, :1]).all()
    assert len(torch.unique(batch.row_B)) == len(batch.row_B)


def test_medians_are_relative_to_the_reference_of_the_same_round_and_failures_are_told():
    def numbers(seconds):
        return {"cpu_s": seconds, "peak_mb": 300.0, "before_mb": 200.0, "parameters_m": 1.0}

    rounds = [
        {"loss_prediction": numbers(one), "elk": numbers(other), "broken": "UserError: no"}
        for one, other in ((1.0, 2.0), (2.0, 8.0), (4.0, 12.0))
    ]
    found = head_costs.medians(rounds)
    assert found["elk"]["relative"] == 3.0  # of 2, 4, 3
    assert found["elk"]["cpu_s"] == 8.0
    assert found["broken"] == "UserError: no"
    lines = head_costs.as_markdown(found)
    assert [line.split(" | ")[0] for line in lines[2:]] == ["| loss_prediction", "| elk", "| broken"]


def test_a_head_that_fails_in_its_process_gives_the_reason(monkeypatch):
    ends = iter([(1, "Traceback\nUserError: no classes\n"), (-9, "")])

    def run(command, **_):
        code, said = next(ends)
        return subprocess.CompletedProcess(command, code, stdout="", stderr=said)

    monkeypatch.setattr(subprocess, "run", run)
    assert head_costs.in_a_process("elk", []) == "UserError: no classes"
    assert head_costs.in_a_process("elk", []) == "ended by signal 9"
