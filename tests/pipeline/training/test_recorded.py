"""A step that is replayed does what the step does; recording itself needs a GPU, and is played here."""

from __future__ import annotations

import pytest
import torch

from pipeline.heads.loss_prediction import LossPrediction
from pipeline.training.engines import single as module
from pipeline.training.engines.single import Single
from pipeline.training.recorded import draws
from pipeline.training.summary import summarise
from pipeline.world import World
from tests.pipeline.training.test_cut import batch_of
from tests.pipeline.training.test_teams import draws as drawing_loss
from tests.pipeline.training.test_teams import members_of

COUNT = 8


def replayable(work):
    """Like a CUDA graph: work is not done when it is recorded, and done again by each replay."""
    return work


def trained(store, record=None, **options):
    members = members_of(summarise(store), **options)
    steps = Single(members, members[0].config, World())
    steps.record = record
    for step in range(COUNT):
        rows = batch_of(64, width=16)
        rows.representation_BVD.add_(step)
        steps.run(iter([rows]), step=step, rates=[1e-2 / (1 + step)] * 3)
        rows.representation_BVD.fill_(torch.nan)  # the batch's memory is the reader's again
    return steps


@pytest.mark.parametrize("options", [{}, {"batched": "on", "ema": 0.9, "clip_norm": 0.01}, {"accumulate": 2}])
def test_replayed_steps_give_the_bytes_of_plain_ones(store, options):
    plain, replayed = trained(store, **options), trained(store, record=replayable, **options)
    assert replayed._recorded is not None
    assert plain.notes == replayed.notes
    assert torch.equal(replayed.losses.take(), plain.losses.take())
    state, wanted = replayed.state(), plain.state()
    assert state.keys() == wanted.keys()
    assert all(torch.equal(state[name], value) for name, value in wanted.items())


def cannot(work):
    work_is_python = "operation not permitted when stream is capturing"
    raise RuntimeError(work_is_python)


@pytest.mark.parametrize("why", ["cannot be recorded", "draws"])
def test_a_step_that_cannot_be_recorded_is_done_plainly_and_it_is_said(store, monkeypatch, why):
    if why == "draws":
        monkeypatch.setattr(LossPrediction, "loss", drawing_loss)
    plain, other = trained(store), trained(store, record=replayable if why == "draws" else cannot)
    [line] = other.notes
    assert line.startswith("a step cannot be one CUDA graph (")
    assert ("its loss draws" if why == "draws" else "not permitted") in line
    state = other.state()
    assert all(torch.equal(state[name], value) for name, value in plain.state().items())
    assert torch.equal(other.losses.take(), plain.losses.take())


def test_what_draws_is_found(store, monkeypatch):
    [member, *_] = members_of(summarise(store))
    assert not draws(member, batch_of(64, width=16))
    monkeypatch.setattr(LossPrediction, "loss", drawing_loss)
    assert draws(member, batch_of(64, width=16))


def test_a_failure_elsewhere_is_raised_at_the_next_replay(store):
    steps = trained(store, record=replayable)
    steps.fail(OSError("no space left"))
    with pytest.raises(OSError, match="no space"):
        steps.run(iter([batch_of(64, width=16)]), step=COUNT, rates=[1e-2] * 3)


def test_on_a_cpu_nothing_is_recorded(store):
    assert trained(store)._recorded is None
    assert module.WARM < COUNT
