"""Both objectives on cases worked by hand, and against independent implementations."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.errors import UserError
from pipeline.heads import make_head
from pipeline.heads.base import RepresentationBatch, Summary
from pipeline.heads.loss_prediction import ranking_loss


def ranking(u, task_loss, **options):
    return ranking_loss(torch.tensor(u), torch.tensor(task_loss), **{"margin": 0.1, **options})


def test_ranking_by_hand():
    # pair 1: loss 2 > 1, so u must be higher by 0.1: it is by 0.5, nothing to pay
    # pair 2: loss 1 < 3, u is 0.3 too high, and short of the margin: 0.3 + 0.1
    # pair 3: loss 5 > 4, u higher by only 0.04: 0.1 − 0.04
    output = ranking([1.0, 0.5, 0.8, 0.5, 0.30, 0.26], [2.0, 1.0, 1.0, 3.0, 5.0, 4.0])
    assert output.total.item() == pytest.approx((0.0 + 0.4 + 0.06) / 3, rel=1e-5)
    assert output.parts["in_order"].item() == pytest.approx(2 / 3)


def test_the_gradient_lifts_the_row_with_the_larger_loss():
    u = torch.tensor([0.5, 0.5, 0.5, 0.5], requires_grad=True)
    ranking_loss(u, torch.tensor([2.0, 1.0, 1.0, 2.0]), margin=0.1).total.backward()
    assert u.grad.tolist() == [-0.5, 0.5, 0.5, -0.5]  # descending along it: first row up, second down; then reversed


def test_equal_losses_are_else_without_leeway_and_nothing_with_it():
    assert ranking([0.5, 0.2], [1.0, 1.0]).total.item() == pytest.approx(0.3 + 0.1)  # Eq. 4: else → −1
    assert ranking([0.5, 0.2], [1.0, 1.0], leeway=0.01).total.item() == 0  # Eq. 5: 0


def test_leeway_by_hand():
    # differences 0.5, 0.25, −0.25, −0.5 with a leeway of 0.25 (exact in binary): only the outer two count
    output = ranking([0.0] * 8, [1.5, 1.0, 1.25, 1.0, 1.0, 1.25, 1.0, 1.5], leeway=0.25)
    assert output.total.item() == pytest.approx(2 * 0.1 / 4)
    u = torch.zeros(4, requires_grad=True)
    ranking_loss(u, torch.tensor([1.0, 1.25, 1.5, 1.0]), margin=0.1, leeway=0.25).total.backward()
    assert u.grad.tolist() == [0, 0, -0.5, 0.5]


def test_pairs_are_neighbours_and_an_odd_last_row_has_none():
    u, task_loss = [0.1, 0.9, 0.4, 0.2], [1.0, 2.0, 3.0, 4.0]
    even = ranking(u, task_loss).total.item()
    assert even == pytest.approx((0 + 0.3) / 2)
    assert ranking([*u, 9.0], [*task_loss, -9.0]).total.item() == even
    assert ranking([0.3], [1.0]).total.item() == 0


rows = st.integers(1, 24).flatmap(
    lambda n: st.tuples(
        st.lists(st.floats(0, 5, width=32), min_size=n, max_size=n),
        st.lists(st.sampled_from([0.0, 0.5, 0.5009765625, 1.0, 3.0]), min_size=n, max_size=n),
    )
)


@settings(max_examples=60, deadline=None)
@given(
    rows=rows,
    margin=st.floats(0, 1, width=32),
    leeway=st.sampled_from([0.0, 0.001, 0.6]),
    group=st.sampled_from([2, 2, 3, 8]),
)
def test_ranking_against_the_text(rows, margin, leeway, group):
    """The text of App. D: 'the uncertainty of that sample is forced to be higher … by a margin of at least m'."""
    u, task_loss = rows
    groups = [range(start, start + group) for start in range(0, len(u) - group + 1, group)]
    pairs = [pair for rows in groups for pair in combinations(rows, 2)]
    total = 0.0
    for first, second in pairs:
        higher, lower = (first, second) if task_loss[first] > task_loss[second] else (second, first)
        if leeway > 0 and task_loss[higher] - task_loss[lower] <= leeway:
            continue
        total += max(0.0, margin - (u[higher] - u[lower]))
    expected = total / max(len(pairs), 1)
    assert ranking(u, task_loss, margin=margin, leeway=leeway, group=group).total.item() == pytest.approx(
        expected, abs=1e-5
    )


def batch_of(representation_ND, task_loss_N):
    return RepresentationBatch(
        representation_BVD=representation_ND[:, None],
        row_B=torch.arange(len(representation_ND)),
        task_loss_BV=task_loss_N[:, None],
    )


def prepared(seed=0, width=6, **options):
    head = make_head({"kind": "loss_prediction", "hidden": 8, **options}, seed=seed)
    head.prepare(Summary(width=width, rows=10, num_classes=3))
    return head


def reference(head, x_ND):
    """The network of App. A in numpy, float64."""
    weights = [p.detach().double().numpy() for p in head.network.parameters()]
    x = x_ND.double().numpy()
    for place in range(0, len(weights), 2):
        x = x @ weights[place].T + weights[place + 1]
        if place + 2 < len(weights):
            x = np.where(x > 0, x, 0.01 * x)
    return np.log1p(np.exp(x[:, 0]))


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_the_network_is_the_papers(layers):
    head = prepared(layers=layers)
    x_ND = torch.randn(5, 6, generator=torch.Generator().manual_seed(0))
    np.testing.assert_allclose(head(x_ND).uncertainty_B.detach().numpy(), reference(head, x_ND), rtol=1e-5)


def test_the_default_network_has_the_papers_size():
    head = make_head({"kind": "loss_prediction"})
    head.prepare(Summary(width=1024, rows=10, num_classes=3))
    shapes = [tuple(p.shape) for p in head.parameters()]
    assert shapes == [(512, 1024), (512,), (512, 512), (512,), (1, 512), (1,)]
    assert head.config.margin == 0.1


def test_l2_is_the_mean_square_against_the_task_loss():
    head = prepared(objective="l2")
    x_ND = torch.randn(7, 6, generator=torch.Generator().manual_seed(1))
    task_loss_N = torch.rand(7, generator=torch.Generator().manual_seed(2)) * 4
    expected = np.mean((reference(head, x_ND) - task_loss_N.double().numpy()) ** 2)
    assert head.loss(batch_of(x_ND, task_loss_N)).total.item() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("group", [2, 8])
def test_a_batch_cut_into_whole_groups_has_the_same_loss(group):
    head = prepared(group=group)
    assert head.needs.together == group
    x_ND = torch.randn(32, 6, generator=torch.Generator().manual_seed(1))
    task_loss_N = torch.rand(32, generator=torch.Generator().manual_seed(2))
    whole = head.loss(batch_of(x_ND, task_loss_N)).total
    parts = [head.loss(batch_of(x, t)).total for x, t in zip(x_ND.chunk(4), task_loss_N.chunk(4), strict=True)]
    assert torch.stack(parts).mean().item() == pytest.approx(whole.item(), rel=1e-5)


def test_seeds_differ_and_leave_the_global_generator_alone():
    torch.manual_seed(3)
    before = torch.random.get_rng_state()
    first, again, other = prepared(seed=1), prepared(seed=1), prepared(seed=2)
    assert torch.equal(torch.random.get_rng_state(), before)
    for a, b, c in zip(first.parameters(), again.parameters(), other.parameters(), strict=True):
        assert torch.equal(a, b)
        assert not torch.equal(a, c)


def test_initial_weights_are_uniform_in_one_over_root_inputs():
    head = make_head({"kind": "loss_prediction"})
    head.prepare(Summary(width=400, rows=10, num_classes=3))
    weight = head.network[0].weight.detach()
    assert weight.abs().max() <= 1 / 20
    assert weight.std().item() == pytest.approx(1 / 20 / 3**0.5, rel=0.01)
    assert abs(weight.mean().item()) < 1e-3


@pytest.mark.parametrize(
    ("wrong", "said"),
    [({"margin": -1}, "head.margin"), ({"objektive": "l2"}, "Did you mean 'objective'"), ({"objective": "l1"}, "l2")],
)
def test_wrong_values_are_named(wrong, said):
    with pytest.raises(UserError, match=said):
        make_head({"kind": "loss_prediction", **wrong})
