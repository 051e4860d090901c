"""Training that starts from a head that is there: what is kept, what begins anew, what is refused, and going on."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from pipeline.config import parse
from pipeline.errors import UserError
from pipeline.heads import make_head
from pipeline.heads.base import Summary
from pipeline.interruption import Interrupted, ask_to_stop, forget
from pipeline.progress import Silent
from pipeline.release.bundle import Bundle, write_bundle
from pipeline.training.checkpoints import load_head, read_checkpoint, save_head
from pipeline.training.config import TrainingConfig
from pipeline.training.initial import read_initial, refuse_other_backbone, start_from
from pipeline.training.initial_records import initial_content
from pipeline.training.loop import train
from pipeline.training.summary import summarise

OURS = Summary(width=6, rows=9, num_classes=3, class_names=("a", "b", "c"), mean_D=torch.zeros(6))
THEIRS = replace(OURS, class_names=("x", "y", "z"))
HEADS = [
    {"kind": "loss_prediction", "hidden": 4},
    {"kind": "elk", "dimension": 4, "hidden": 4},
    {"kind": "nivmf", "dimension": 4},
    {"kind": "mc_info_nce", "dimension": 4, "hidden": 4},
]


def saved(folder, config, summary, seed=0):
    """A head with weights that no drawing gives."""
    head = make_head(config, seed=seed)
    head.prepare(summary)
    with torch.no_grad():
        for number, parameter in enumerate(head.parameters()):
            parameter.copy_(torch.linspace(0.1, 1 + number, parameter.numel()).view(parameter.shape))
    save_head(folder, head, summary, store="", training={}, metrics={})
    return head.state_dict()


def started(config, folder, summary, seeds=(0,)):
    head = make_head(config, seed=seeds[0])
    head.prepare(summary)
    drawn = {name: value.clone() for name, value in head.state_dict().items()}
    anew = start_from(head, read_initial(folder, seeds).heads[seeds[0]], summary, folder)
    return head, drawn, anew


@pytest.mark.parametrize("config", HEADS, ids=[head["kind"] for head in HEADS])
def test_with_the_same_classes_a_head_starts_as_its_source_bit_for_bit(config, tmp_path):
    theirs = saved(tmp_path / "source", config, OURS)
    head, _, anew = started(config, tmp_path / "source", OURS)
    assert anew == []
    assert all(value.equal(theirs[name]) for name, value in head.state_dict().items())


@pytest.mark.parametrize("config", HEADS, ids=[head["kind"] for head in HEADS])
def test_with_other_classes_only_what_is_learnt_a_class_begins_anew_whatever_their_number(config, tmp_path):
    theirs = saved(tmp_path / "source", config, THEIRS)
    for summary in (OURS, replace(OURS, num_classes=5, class_names=tuple("abcde"))):
        head, drawn, anew = started(config, tmp_path / "source", summary)
        assert bool(anew) == (config["kind"] in ("elk", "nivmf"))
        for name, value in head.state_dict().items():
            assert value.equal(drawn[name] if name in anew else theirs[name])


def test_each_seed_starts_from_its_own_and_one_head_serves_all(tmp_path):
    for seed in (0, 2):
        saved(tmp_path / f"seed-{seed}", HEADS[0], OURS, seed=seed)
    heads = read_initial(tmp_path, (2, 0)).heads
    assert {seed: one.record["seed"] for seed, one in heads.items()} == {0: 0, 2: 2}
    one = read_initial(tmp_path / "seed-2", (0, 1)).heads
    assert [one[seed].record["seed"] for seed in (0, 1)] == [2, 2]
    assert initial_content(tmp_path, (0,)) != initial_content(tmp_path, (0, 2))


def test_a_released_model_is_read_and_must_be_of_the_store_s_backbone(tmp_path, store):
    theirs = saved(tmp_path / "seed-0", HEADS[0], OURS)
    checkpoint = read_checkpoint(tmp_path / "seed-0")
    config = {"head": dict(checkpoint.record), "backbone": {"weights_sha256": "0" * 64}}
    write_bundle(tmp_path / "run" / "model", Bundle(config=config, tensors=checkpoint.tensors), card="")
    for place in (tmp_path / "run", tmp_path / "run" / "model"):
        head, _, _ = started(HEADS[0], place, OURS)
        assert all(value.equal(theirs[name]) for name, value in head.state_dict().items())
    initial = read_initial(tmp_path / "run", (0,))
    refuse_other_backbone(initial, store)  # it has none on record
    store.run = {**store.run, "backbone": {"weights_sha256": "1" * 64}}
    with pytest.raises(UserError, match=r"SHA-256 000000000000…, those of .* are 111111111111…"):
        refuse_other_backbone(initial, store)


@pytest.mark.parametrize(
    ("config", "summary", "seeds", "message"),
    [
        ({"kind": "info_nce"}, OURS, (0,), "holds a head loss_prediction, trained is a head info_nce"),
        ({"kind": "loss_prediction", "hidden": 5}, OURS, (0,), r"does not fit in network\.0\.bias, .*hidden"),
        (HEADS[0], replace(OURS, width=7), (0,), "of width 6, those of the store have 7"),
        (HEADS[0], OURS, (0, 1), "no head of seed 1. Set train_head.seeds to those it has, or name"),
        (HEADS[0], OURS, (3,), "no head at .*with seed-3"),
    ],
)
def test_what_does_not_fit_is_refused(config, summary, seeds, message, tmp_path):
    saved(tmp_path / "seed-0", HEADS[0], OURS)
    with pytest.raises(UserError, match=message):
        started(config, tmp_path, summary, seeds)


def test_it_is_trained_from_there_and_goes_on_where_it_was_stopped(store, tmp_path, monkeypatch):
    summary = summarise(store)
    saved(tmp_path / "source", HEADS[0], summary)
    initial = read_initial(tmp_path / "source", (1,))
    values = {"seeds": [1], "steps": 8, "batch_size": 16, "device": "cpu", "log_every": 2, "warmup_episodes": 0}
    config = parse(TrainingConfig, {**values, "base_lr": 1e-6, "start_lr": 1e-6}, "train_head")
    given = {"store": store, "head": HEADS[0], "config": config, "summary": summary, "progress": Silent()}
    train(**given, folder=tmp_path / "one", initial=initial)
    whole = load_head(tmp_path / "one" / "seed-1").state_dict()
    source = load_head(tmp_path / "source").state_dict()
    assert all(value.allclose(source[name], atol=1e-3) for name, value in whole.items())
    assert not all(value.equal(source[name]) for name, value in whole.items())
    ask_to_stop()
    with pytest.raises(Interrupted):
        train(**given, folder=tmp_path / "two", initial=initial)
    forget()
    train(**given, folder=tmp_path / "two", initial=initial)
    names = [tmp_path / run / "seed-1" / "head.safetensors" for run in ("one", "two")]
    assert names[0].read_bytes() == names[1].read_bytes()
