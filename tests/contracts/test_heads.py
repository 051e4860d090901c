"""What every head promises, for every head that is found, with every set of settings in configs/head/.

A new head, or set of settings, needs no line here.
"""

from __future__ import annotations

import inspect
import math
import sys

import pytest
import torch
from omegaconf import OmegaConf

from cluster.compose import CONFIGS, options
from pipeline.heads import head_names, make_head
from pipeline.heads.base import LinearClassifier, RepresentationBatch, Summary
from pipeline.training.checkpoints import load_head, save_head
from pipeline.training.config import TrainingConfig
from pipeline.training.members import Member
from pipeline.training.teams import team_up
from pipeline.training.updates import Updates
from tests.toys import toy_heads

WIDTH, CLASSES = 12, 5


def settings_of(name):
    """What stands in the file, with what it takes over from the recipe."""
    files = {"recipe": "recipe/paper", "head": f"head/{name}"}
    whole = {key: OmegaConf.load(CONFIGS / f"{file}.yaml") for key, file in files.items()}
    return OmegaConf.to_container(OmegaConf.create(whole), resolve=True)["head"]


SETTINGS = {name: settings_of(name) for name in options("head")}


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


SUMMARY = Summary(
    width=WIDTH,
    rows=100,
    num_classes=CLASSES,
    class_names=tuple("abcde"),
    mean_D=torch.linspace(-1, 1, WIDTH),
    scale=0.7,
    classifier=LinearClassifier(
        weight_CD=torch.randn(CLASSES, WIDTH, generator=generator(1)),
        bias_C=torch.randn(CLASSES, generator=generator(2)),
    ),
)


def made(name, seed=0):
    return make_head(SETTINGS[name], seed=seed)


def ready(name, seed=0):
    head = made(name, seed)
    head.prepare(SUMMARY)
    return head


def make_batch(head, rows, seed=0):
    """At least so many rows, in whole groups of what the head wants beside each other."""
    needs = head.needs
    rows = -(-rows // needs.group) * needs.group
    label_B = torch.randint(CLASSES, (rows,), generator=generator(seed + 2))
    if needs.sampling != "uniform":
        groups_GB = label_B.view(-1, needs.group)
        groups_GB[:] = groups_GB[:, :1].clone()
        if needs.sampling == "triplets":
            groups_GB[:, 2:] += torch.randint(1, CLASSES, groups_GB[:, 2:].shape, generator=generator(seed + 3))
            groups_GB %= CLASSES
    return RepresentationBatch(
        representation_BVD=torch.randn(rows, needs.views, WIDTH, generator=generator(seed)),
        row_B=torch.arange(rows),
        task_loss_BV=torch.rand(rows, needs.views, generator=generator(seed + 1)) if needs.task_loss else None,
        label_B=label_B if needs.labels else None,
        progress_B=torch.full((rows,), 0.25) if needs.progress else None,
    )


with toy_heads():  # the contract holds for them too, which shows that it can be kept with any sampling
    SETTINGS.update({name: {"kind": name} for name in head_names() if name not in SETTINGS})
    TRAINED = [name for name in SETTINGS if made(name).needs.training]
    KEEPING = [name for name in SETTINGS if made(name).keeps_representation]
heads = pytest.mark.parametrize("name", SETTINGS)
trained = pytest.mark.parametrize("name", TRAINED)


@pytest.fixture(autouse=True)
def found():
    with toy_heads():
        yield


def test_the_heads_of_the_main_job_are_there():
    assert {"loss_prediction", "classifier_entropy", "inverse_norm", "random"} <= set(head_names())


@heads
def test_shapes_names_and_finite_values(name):
    head = ready(name).eval()
    output = head(torch.randn(7, WIDTH, generator=generator()))
    assert output.embedding_BE.ndim == 2
    assert len(output.embedding_BE) == 7
    assert output.primary in output.uncertainty
    for value in output.uncertainty.values():
        assert value.shape == (7,)
        assert value.is_floating_point()
        assert value.isfinite().all()


@heads
def test_the_same_seed_gives_the_same_bits(name):
    x_BD = torch.randn(7, WIDTH, generator=generator())
    head = ready(name).eval()
    first, again, twin = head(x_BD), head(x_BD), ready(name).eval()(x_BD)
    for output in (again, twin):
        assert torch.equal(first.embedding_BE, output.embedding_BE)
        for key, value in first.uncertainty.items():
            assert torch.equal(value, output.uncertainty[key])


@heads
def test_making_a_head_leaves_the_global_generator_alone(name):
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    ready(name)
    assert torch.equal(torch.random.get_rng_state(), before)


@heads
def test_a_row_is_judged_by_itself(name):
    head = ready(name).eval()
    x_BD = torch.randn(6, WIDTH, generator=generator())
    whole = head(x_BD)
    for row in range(6):
        alone = head(x_BD[row : row + 1])
        torch.testing.assert_close(alone.embedding_BE[0], whole.embedding_BE[row])
        torch.testing.assert_close(alone.uncertainty_B[0], whole.uncertainty_B[row], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", KEEPING)
def test_stop_grad_heads_return_the_very_bits_of_the_representation(name):
    head = ready(name).eval()
    x_BD = torch.randn(6, WIDTH, generator=generator())
    before = x_BD.clone()
    for representation_BD in (x_BD, x_BD.half()):
        assert head(representation_BD).embedding_BE is representation_BD
    assert torch.equal(x_BD, before)


@trained
@pytest.mark.parametrize("rows", [64, 2])
def test_gradients_are_finite_and_reach_every_parameter(name, rows):
    head = ready(name).train()
    output = head.loss(make_batch(head, rows))
    assert output.total.shape == ()
    assert output.total.isfinite()
    output.total.backward()
    parameters = dict(head.named_parameters())
    assert parameters
    for key, parameter in parameters.items():
        assert parameter.grad is not None, key
        assert parameter.grad.isfinite().all(), key


@trained
def test_a_batch_may_be_cut_where_the_head_says(name):
    """The loss, its parts and its gradient are the means over any cut into whole groups."""
    head = ready(name).train()
    if head.needs.together is None:
        return
    assert head.needs.together >= 1
    rows = math.lcm(head.needs.together, head.needs.group)
    batch, groups = make_batch(head, 12 * rows), 12

    def look(part):
        torch.manual_seed(0)
        output = head.loss(part)
        head.zero_grad()
        output.total.backward()
        return [output.total.detach(), *output.parts.values(), *(p.grad for p in head.parameters())]

    whole = look(batch)
    for cut in ([1] * 12, [4, 8], [5, 1, 6]):
        means, start = [torch.zeros_like(value) for value in whole], 0
        for count in cut:
            part = {
                name: value[start * rows : (start + count) * rows]
                for name, value in vars(batch).items()
                if value is not None
            }
            for mean, value in zip(means, look(RepresentationBatch(**part)), strict=True):
                mean += count / groups * value
            start += count
        for mean, value in zip(means, whole, strict=True):
            torch.testing.assert_close(mean, value, rtol=1e-4, atol=1e-6)


@trained
def test_heads_of_several_seeds_train_in_one_batch_unless_their_loss_draws(name):
    """Otherwise nobody would notice that a loss does something that vmap cannot."""
    config = TrainingConfig(device="cpu", precision="fp32")
    members = [Member(ready(name, seed), config, torch.device("cpu")) for seed in (0, 1)]
    batch = make_batch(members[0].head, 16)
    members[0].head.train()
    draws = []
    for seed in (0, 1):
        torch.manual_seed(seed)
        draws.append(members[0].head.loss(batch).total.item())
    teams, why = team_up(members, batch, step=0, part=0)
    assert len(teams) == (1 if draws[0] == draws[1] else 2), why


@trained
def test_the_loss_changes_no_buffer(name):
    """It is called for parts of a batch, in several processes."""
    head = ready(name).train()
    before = {key: value.clone() for key, value in head.named_buffers()}
    head.loss(make_batch(head, 16)).total.backward()
    for key, value in head.named_buffers():
        assert torch.equal(value, before[key]), key


@trained
def test_a_batch_of_one_has_a_finite_loss(name):
    head = ready(name).train()
    assert head.loss(make_batch(head, 1)).total.isfinite()


@trained
def test_a_few_steps_lower_the_loss(name):
    head = ready(name).train()
    batch = make_batch(head, 64)
    updates = Updates([Member(head, TrainingConfig(device="cpu", precision="fp32"), torch.device("cpu"))])
    updates.set_rates([1e-3])
    losses = []
    for _ in range(30):
        torch.manual_seed(0)
        loss = head.loss(batch).total
        updates.run(list(torch.autograd.grad(loss, updates.parameters)))
        losses.append(loss.item())
    assert losses[-1] < losses[0]


@heads
def test_save_and_load_gives_the_same_bits(name, tmp_path):
    head = ready(name, seed=3).eval()
    save_head(tmp_path, head, SUMMARY, store="0" * 64, training={"steps": 1}, metrics={"loss": 0.5})
    loaded = load_head(tmp_path)
    assert not loaded.training
    assert (type(loaded), loaded.seed, loaded.config) == (type(head), 3, head.config)
    x_BD = torch.randn(9, WIDTH, generator=generator())
    before, after = head(x_BD), loaded(x_BD)
    assert torch.equal(before.embedding_BE, after.embedding_BE)
    assert before.primary == after.primary
    for key, value in before.uncertainty.items():
        assert torch.equal(value, after.uncertainty[key])


@heads
def test_the_pass_after_training_leaves_a_head_that_can_be_used_and_saved(name, tmp_path):
    """Rows come one by one, not in the groups of the sampling."""
    head, x_BD = ready(name).eval(), torch.randn(9, WIDTH, generator=generator())
    head.finalise(make_batch(head, 60, seed) for seed in (0, 1))
    save_head(tmp_path, head, SUMMARY, store="0" * 64, training={}, metrics={})
    before, after = head(x_BD), load_head(tmp_path)(x_BD)
    for key, value in before.uncertainty.items():
        assert value.isfinite().all()
        assert torch.equal(value, after.uncertainty[key])


@trained
def test_what_follows_the_batches_is_a_parameter(name):
    head = ready(name).train()
    assert set(head.running) <= set(dict(head.named_parameters()))
    assert all(0 <= share <= 1 for share in head.running.values())


@heads
def test_the_score_is_documented(name):
    """Every head's file says what its score is; that higher means less sure is the contract, its scale is not."""
    text = " ".join((sys.modules[type(made(name)).__module__].__doc__ or "").split())
    assert "score" in text
    assert "Shape suffixes" in text
    assert "Uncertainty =" in (inspect.getdoc(type(made(name))) or "")


@heads
def test_a_head_does_no_input_output(name):
    source = inspect.getsource(sys.modules[type(made(name)).__module__])
    for forbidden in ("open(", "print(", "import os", "pathlib", "cuda", "distributed", "logging"):
        assert forbidden not in source
