"""Heads in one batch of computation are what they are one after the other, and those that cannot be are not."""

from __future__ import annotations

import weakref
from dataclasses import replace

import pytest
import torch
from torch import nn

from pipeline.heads.base import LossOutput
from pipeline.heads.loss_prediction import LossPrediction
from pipeline.progress import Silent
from pipeline.training.checkpoints import load_head
from pipeline.training.config import TrainingConfig
from pipeline.training.engines.single import Single
from pipeline.training.log import TrainingLog
from pipeline.training.loop import train
from pipeline.training.members import Member
from pipeline.training.summary import summarise
from pipeline.training.sweep import head_folders, seed_folder
from pipeline.training.teams import Alone, Stacked, team_up
from pipeline.world import World
from tests.pipeline.training.test_cut import batch_of, make_head
from tests.pipeline.training.test_resume import Stop, StopAt, result

HEAD = {"kind": "loss_prediction", "hidden": 16}
LOSS = LossPrediction.loss


class Listener(Silent):
    """Remembers what is said."""

    def __init__(self):
        self.lines = []

    def say(self, line):
        self.lines.append(line)


def run(store, folder, *, head=HEAD, progress=None, **options):
    defaults = {"steps": 14, "batch_size": 30, "log_every": 4, "checkpoint_seconds": 0, "base_lr": 1e-2}
    config = TrainingConfig(**{**defaults, "seeds": (0, 1, 2), "device": "cpu", **options})
    listener = progress or Listener()
    train(store=store, head=head, config=config, summary=summarise(store), folder=folder, progress=listener)
    return listener.lines if isinstance(listener, Listener) else []


def members_of(summary, seeds=(0, 1, 2), head=HEAD, **options):
    config = TrainingConfig(batch_size=64, device="cpu", **options)
    members = []
    for seed in seeds:
        one = make_head(head, seed=seed)
        one.prepare(summary)
        members.append(Member(one, config, torch.device("cpu")))
    return members


@pytest.mark.parametrize("head", [HEAD, {**HEAD, "objective": "l2", "layers": 1}, {**HEAD, "leeway": 0.1}])
def test_in_one_batch_the_heads_and_logs_are_those_of_one_after_the_other(store, tmp_path, head):
    """The bound is that of the documents."""
    assert run(store, tmp_path / "off", head=head) == []
    assert run(store, tmp_path / "on", head=head, batched="on") == ["train_head: 3 heads in one computation."]
    for seed in (0, 1, 2):
        one, other = (seed_folder(tmp_path / name, seed) for name in ("off", "on"))
        for name, value in load_head(one).state_dict().items():
            torch.testing.assert_close(load_head(other).state_dict()[name], value, rtol=1e-4, atol=1e-6)
        for ours, theirs in zip(
            TrainingLog(other / "log.csv").rows(), TrainingLog(one / "log.csv").rows(), strict=True
        ):
            assert ours["loss"] == pytest.approx(theirs["loss"], rel=1e-5)
            assert ours.keys() == theirs.keys()


def test_in_one_batch_a_run_that_is_cut_off_ends_with_the_same_bytes(store, tmp_path):
    options = {"batched": "on", "ema": 0.9, "clip_norm": 0.1, "log_every": 2}
    run(store, tmp_path / "straight", **options)
    for step in (3, 8):
        with pytest.raises(Stop):
            run(store, tmp_path / "cut", progress=StopAt(step * 30), **options)
    run(store, tmp_path / "cut", **options)
    assert result(tmp_path / "cut") == result(tmp_path / "straight")


def draws(self, batch):
    output = LOSS(self, batch)
    return replace(output, total=output.total * (1 + torch.rand(())))


def decides(self, batch):
    output = LOSS(self, batch)
    return output if output.total > 0.05 else replace(output, total=output.total * 2)


def keeps_something(self, batch):
    output = LOSS(self, batch)
    return replace(output, total=output.total * (1 + self.seed))


@pytest.mark.parametrize(
    ("loss", "reason"),
    [
        (draws, "cannot be computed for several"),
        (decides, "cannot be computed"),
        (keeps_something, "is not what it is"),
    ],
)
def test_heads_that_cannot_be_are_computed_one_after_the_other_and_it_is_said(
    store, tmp_path, monkeypatch, loss, reason
):
    monkeypatch.setattr(LossPrediction, "loss", loss)
    [line] = run(store, tmp_path / "on", batched="on", steps=4)
    assert line.startswith("train_head: 3 heads are computed one after the other: ")
    assert reason in line
    run(store, tmp_path / "off", steps=4)
    assert result(tmp_path / "on") == result(tmp_path / "off")


@pytest.mark.parametrize("batched", ["on", "off"])
def test_gradients_that_autograd_shares_or_transposes_are_put_right(store, monkeypatch, batched):
    """In-place sums and the fused optimiser take a gradient as it lies in memory."""

    def loss(self, batch):
        one, two = self.network[0].weight, self.network[2].weight
        return LossOutput(total=(batch.representation_BVD[:, 0] @ (one + two).t().matmul(one)).square().mean())

    monkeypatch.setattr(LossPrediction, "loss", loss)
    config = {"batched": batched, "base_lr": 1e-2, "weight_decay": 0.0}
    members, plain = members_of(summarise(store), **config), members_of(summarise(store), **config)
    steps = Single(members, members[0].config, World())
    optimizers = [torch.optim.AdamW(m.head.parameters(), 1e-2, (0.8, 0.95), weight_decay=0, fused=False) for m in plain]
    for step in range(3):
        steps.run(iter([batch_of(64, width=16)]), step=step, rates=[1e-2] * 3)
        for member, optimizer in zip(plain, optimizers, strict=True):
            optimizer.zero_grad()
            member.head.loss(batch_of(64, width=16)).total.backward()
            optimizer.step()
    assert bool(steps.notes) == (batched == "on")
    for member, other in zip(members, plain, strict=True):
        for name in ("network.0.weight", "network.2.weight"):
            ours, theirs = member.head.get_parameter(name), other.head.get_parameter(name)
            torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-5)


def test_gradients_of_a_part_are_let_go_once_they_are_added(store, monkeypatch):
    """A tree over 32 parts has six sums open at most; a large head's gradients are gigabytes."""
    (member,) = members_of(summarise(store), seeds=(0,), accumulate=32)
    made, most, compute = [], [], Alone.compute

    def watched(self, rows, **where):
        most.append(sum(tensor() is not None for tensor in made))
        found = compute(self, rows, **where)
        made.append(weakref.ref(found.gradients[0]))
        return found

    monkeypatch.setattr(Alone, "compute", watched)
    Single([member], member.config, World()).run(iter([batch_of(64, width=16)]), step=0, rates=[1e-2])
    assert len(made) == 32
    assert max(most) == 5, "and the one that comes"


def test_heads_of_different_shapes_are_not_stacked(store):
    summary = summarise(store)
    members = [*members_of(summary), *members_of(summary, head={**HEAD, "hidden": 8})]
    teams, reason = team_up(members, batch_of(8, width=16), step=0, part=0)
    assert [type(team) for team in teams] == [Alone] * 6
    assert "cannot be computed" in reason


def test_buffers_frozen_and_tied_parameters_are_each_members_own(store, monkeypatch):
    prepare = LossPrediction.prepare

    def richer(self, summary):
        prepare(self, summary)
        self.register_buffer("offset", torch.tensor(float(self.seed)))
        self.frozen = nn.Parameter(torch.tensor(1.0 + self.seed), requires_grad=False)
        self.tied = self.network[0]

    def loss(self, batch):
        output = LOSS(self, batch)
        tied = self.tied.weight.square().mean()
        return LossOutput(total=(output.total + self.offset + tied) * self.frozen, parts=output.parts)

    monkeypatch.setattr(LossPrediction, "prepare", richer)
    monkeypatch.setattr(LossPrediction, "loss", loss)
    members = members_of(summarise(store))
    rows = batch_of(64, width=16)
    together = Stacked(members)
    found, size = together.compute(rows, step=0, part=0, weight=0.5), len(members[0].parameters)
    for place, member in enumerate(members):
        alone = Alone(member).compute(rows, step=0, part=0, weight=0.5)
        assert found.names == alone.names == ["loss", "in_order"]
        torch.testing.assert_close(found.values_MK[place : place + 1], alone.values_MK)
        torch.testing.assert_close(found.gradients[place * size : (place + 1) * size], alone.gradients)
    together.adopt()
    with torch.no_grad():
        members[1].head.tied.weight.add_(1.0)
    assert torch.equal(together.parameters["head.network.0.weight"][1], members[1].head.network[0].weight)


def test_a_sweep_gives_at_each_point_what_a_run_of_it_alone_gives(store, tmp_path):
    """Weights, records and logs, byte for byte."""
    sweep = {"base_lr": (1e-3, 3e-2), "weight_decay": (0.0, 0.5)}
    options = {"steps": 6, "seeds": (4, 2), "ema": 0.5, "clip_norm": 1.0}
    run(store, tmp_path / "all", sweep=sweep, **options)
    names = {f"base_lr-{rate}_weight_decay-{decay}" for rate in (0.001, 0.03) for decay in (0.0, 0.5)}
    assert {path.name for path in (tmp_path / "all").iterdir()} == names
    seen = set()
    for rate in sweep["base_lr"]:
        for decay in sweep["weight_decay"]:
            alone = tmp_path / f"{rate} {decay}"
            run(store, alone, base_lr=rate, weight_decay=decay, **options)
            found = result(tmp_path / "all" / f"base_lr-{rate}_weight_decay-{decay}")
            assert found == result(alone)
            seen.add(found["seed-4/head.safetensors"])
    assert len(seen) == 4
    assert run(store, tmp_path / "on", sweep=sweep, batched="on", **options) == [
        "train_head: 8 heads in one computation."
    ]
    for one, other in zip(
        head_folders(tmp_path / "all", TrainingConfig(sweep=sweep, seeds=(4, 2))),
        head_folders(tmp_path / "on", TrainingConfig(sweep=sweep, seeds=(4, 2))),
        strict=True,
    ):
        for name, value in load_head(one).state_dict().items():
            torch.testing.assert_close(load_head(other).state_dict()[name], value, rtol=1e-4, atol=1e-6)
