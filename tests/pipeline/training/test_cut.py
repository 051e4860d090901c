"""Any cut of a batch into parts gives its loss, and any number of processes the same parts."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pipeline.errors import UserError
from pipeline.heads import make_head
from pipeline.heads.base import Needs, RepresentationBatch, Summary
from pipeline.training.config import TrainingConfig
from pipeline.training.cut import PARTS, additions, cut_batch
from pipeline.training.engines.single import Single
from pipeline.training.members import Member, draw_seed
from pipeline.world import World

sizes = st.integers(1, 5000)


GROUPS = [Needs(), *(Needs(sampling="class_balanced", rows_per_class=count) for count in (2, 3, 4))]
GROUPS += [Needs(sampling="triplets", negatives=count) for count in (1, 5)]


@given(
    rows=sizes,
    needs=st.sampled_from(GROUPS),
    together=st.sampled_from([1, 2, 3]),
    processes=st.integers(1, 9),
    exact=st.booleans(),
)
def test_parts_are_whole_groups_and_every_process_has_some(rows, needs, together, processes, exact):
    together = needs.group if needs.sampling == "triplets" else together
    needs = replace(needs, together=together)
    unit = math.lcm(together, needs.group)
    groups = rows // unit
    call = {"accumulate": 1, "processes": processes, "exact": exact}
    if not groups:
        with pytest.raises(UserError, match=rf"batch_size: {rows} rows, .* groups of {unit}\. Set at least {unit}"):
            cut_batch(rows, needs, **call)
        return
    if groups < processes:
        with pytest.raises(UserError, match=f"has {groups} groups of {unit} .*at most {groups} process"):
            cut_batch(rows, needs, **call)
        return
    cut = cut_batch(rows, needs, **call)
    assert (cut.bounds[0], cut.bounds[-1]) == (0, rows)
    assert all(bound % unit == 0 for bound in cut.bounds[:-1])
    whole = [(stop - start) // unit for start, stop in zip(cut.bounds, cut.bounds[1:], strict=False)]
    assert sum(cut.weights) == pytest.approx(1)
    terms = [(stop - start) // together for start, stop in zip(cut.bounds, cut.bounds[1:], strict=False)]
    assert cut.weights == tuple(count / (rows // together) for count in terms)
    assert max(whole) - min(whole) <= 1
    seen = [place for rank in range(processes) for place in range(rows)[cut.rows(rank)]]
    assert seen == list(range(rows))
    assert all(cut.mine(rank) for rank in range(processes))


@given(rows=sizes, needs=st.sampled_from(GROUPS), accumulate=st.integers(1, 9), exact=st.booleans())
def test_a_loss_over_all_rows_of_a_part_finds_whole_groups_in_it(rows, needs, accumulate, exact):
    """A row of a class that stood alone in its part would have nothing of its class to be compared with."""
    rows, groups = rows * needs.group, rows
    call = {"accumulate": accumulate, "processes": 1, "exact": exact}
    if groups < accumulate:
        with pytest.raises(UserError, match=rf"accumulate: {accumulate} parts .* Take {groups} parts at most"):
            cut_batch(rows, needs, **call)
        return
    cut = cut_batch(rows, needs, **call)
    assert len(cut.weights) == accumulate
    assert all(bound % needs.group == 0 for bound in cut.bounds)
    sizes_ = [stop - start for start, stop in zip(cut.bounds, cut.bounds[1:], strict=False)]
    assert max(sizes_) - min(sizes_) <= needs.group
    assert cut.weights == tuple(size / rows for size in sizes_)


def test_triplets_may_not_be_torn_by_a_heads_own_word():
    with pytest.raises(ValueError, match=r"together=2 tears groups of 5 rows"):
        Needs(sampling="triplets", negatives=3, together=2)
    with pytest.raises(ValueError, match="at least 1"):
        Needs(sampling="triplets", negatives=0)


def test_up_to_so_many_processes_have_the_parts_of_one():
    for rows in (2048, 50, 9):
        alone = cut_batch(rows, Needs(together=2), accumulate=1, processes=1, exact=True)
        for processes in range(2, PARTS + 1):
            cut = cut_batch(rows, Needs(together=2), accumulate=1, processes=processes, exact=True)
            assert (cut.bounds, cut.weights) == (alone.bounds, alone.weights)
    assert len(cut_batch(2048, Needs(together=2), accumulate=1, processes=1, exact=False).weights) == 1


def test_a_loss_that_compares_all_rows_is_cut_into_the_parts_that_were_asked_for():
    for exact in (True, False):
        cut = cut_batch(48, Needs(), accumulate=3, processes=2, exact=exact)
        assert (cut.bounds, cut.owners) == ((0, 16, 32, 48), (0, 1, 1))
    with pytest.raises(UserError, match=r"Set train_head\.accumulate=3 .* or start at most 1 process\."):
        cut_batch(64, Needs(), accumulate=1, processes=3, exact=True)
    with pytest.raises(UserError, match=r"number of parts\. start at most 1 process\."):
        cut_batch(6, Needs(sampling="class_balanced", rows_per_class=3), accumulate=1, processes=3, exact=True)


@given(count=st.integers(1, 40))
def test_additions_are_a_tree_over_neighbours(count):
    held = {part: (part, part) for part in range(count)}
    depth = dict.fromkeys(range(count), 0)
    for left, right, last in additions(count):
        assert held[left][1] + 1 == right == held[right][0]
        held[left] = (held[left][0], held.pop(right)[1])
        assert held[left] == (left, last)
        depth[left] = max(depth[left], depth.pop(right)) + 1
    assert held == {0: (0, count - 1)}
    assert depth[0] == (count - 1).bit_length()


def batch_of(rows, width=12):
    draw = torch.Generator().manual_seed(rows)
    return RepresentationBatch(
        representation_BVD=torch.randn(rows, 1, width, generator=draw),
        row_B=torch.arange(rows),
        task_loss_BV=torch.rand(rows, 1, generator=draw),
    )


@pytest.mark.parametrize("rows", [64, 51, 3, 2])
def test_the_gradient_of_all_parts_is_that_of_the_batch(rows):
    head = make_head({"kind": "loss_prediction", "hidden": 8})
    head.prepare(Summary(width=12, rows=rows, num_classes=1))
    config = TrainingConfig(batch_size=rows, device="cpu")
    member = Member(head, config, torch.device("cpu"))
    output = head.loss(batch_of(rows))
    whole = torch.autograd.grad(output.total, member.parameters)
    got = []
    steps = Single([member], config, World())
    steps.updates.run = got.extend
    steps.run(iter([batch_of(rows)]), step=0, rates=[0.1])
    for ours, theirs in zip(got, whole, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-7)
    values = dict(zip(steps.losses.names, steps.losses.take()[0, 0], strict=True))
    assert values["loss"].item() == pytest.approx(output.total.item(), rel=1e-6)
    assert values["in_order"].item() == pytest.approx(output.parts["in_order"].item(), rel=1e-6)


def test_what_is_drawn_differs_for_every_seed_step_and_part():
    """Torch's CPU generator looks at 32 bits of a seed: shifting one half up would give all members the same draws."""
    drawn = set()
    for seed in (0, 1, 1 << 30):
        for step in (0, 1, 44_921):
            for part in (0, 1):
                torch.default_generator.manual_seed(draw_seed(seed, step, part))
                drawn.add(tuple(torch.rand(2).tolist()))
    assert len(drawn) == 18


def test_fields_that_are_not_needed_stay_out_of_the_parts():
    config = TrainingConfig(batch_size=8, device="cpu")
    head = make_head({"kind": "loss_prediction", "hidden": 8})
    head.prepare(Summary(width=12, rows=8, num_classes=1))
    steps = Single([Member(head, config, torch.device("cpu"))], config, World())
    parts = steps._parts(replace(batch_of(8), label_B=None))
    assert [part.row_B.tolist() for part in parts] == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert all(part.label_B is None for part in parts)
