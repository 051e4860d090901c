"""Hedged instance embeddings against loops in float64."""

import math

import numpy as np
import pytest
import torch

from pipeline.errors import UserError
from pipeline.heads import make_head
from pipeline.heads._hib import log_match
from pipeline.heads.base import RepresentationBatch, Summary

SETTINGS = {
    "gaussian": {"posterior": "gaussian", "mean": "projection", "dimension": 3},
    "frozen": {"posterior": "gaussian", "mean": "frozen"},
    "mixture": {"posterior": "mixture", "mean": "projection", "dimension": 3, "components": 2},
    "vmf": {"posterior": "vmf", "mean": "projection", "dimension": 3},
}
variants = pytest.mark.parametrize("name", SETTINGS)


def ready(name, **settings):
    head = make_head({"kind": "hib", "hidden": 8, "layers": 1, "samples": 3, **SETTINGS[name], **settings})
    head.prepare(Summary(width=5, rows=9, num_classes=3))
    return head


def batch(labels):
    x_BVD = torch.randn(len(labels), 1, 5, generator=torch.Generator().manual_seed(0))
    return RepresentationBatch(representation_BVD=x_BVD, row_B=torch.arange(len(labels)), label_B=torch.tensor(labels))


def match(head, first, second):
    """p of Eq. 5 for the samples (M, E) of two rows."""
    a, b = head.log_slope.exp().item(), head.offset.item()
    total = 0.0
    for z_1 in first:
        for z_2 in second:
            likeness = float(z_1 @ z_2) if head.config.posterior == "vmf" else -float(np.linalg.norm(z_1 - z_2))
            total += 1 / (1 + math.exp(-(a * likeness + b)))
    return total / (len(first) * len(second))


@variants
@pytest.mark.parametrize("repulsion", ["mismatch", "match"])
def test_the_loss_by_loops(name, repulsion):
    head, labels = ready(name, repulsion=repulsion, slope=2.0, offset=0.5, beta=0.01), [0, 0, 2, 2, 1, 1]
    torch.manual_seed(4)
    found = head.loss(batch(labels)).total.item()
    torch.manual_seed(4)
    drawn = head.posterior.draw(batch(labels).representation_BVD[:, 0], 3)
    z = drawn.z_BME.double().detach().numpy()
    losses = {True: [], False: []}
    for row, label in enumerate(labels):
        for other in ((row + 1) % 6, (row + 2) % 6):
            p = match(head, z[row], z[other])
            same = label == labels[other]
            losses[same].append(-math.log(p) if same else math.log(p) if repulsion == "match" else -math.log(1 - p))
    wanted = (np.mean(losses[True]) + np.mean(losses[False])) / 2 + 0.01 * drawn.divergence_B.mean().item()
    assert found == pytest.approx(wanted, rel=1e-5)


@variants
def test_the_mismatch_with_oneself_is_what_samples_say(name):
    head = ready(name, samples=200, slope=3.0, offset=1.0)
    x_BD = batch([0] * 4).representation_BVD[:, 0]
    z_SBE = head.sample(x_BD, 400, torch.Generator().manual_seed(1)).double().numpy()
    found_B = head(x_BD).uncertainty["self_mismatch"]
    for row in range(4):
        wanted = 1 - match(head, z_SBE[:200, row], z_SBE[200:, row])
        assert found_B[row].item() == pytest.approx(wanted, abs=0.03)


@variants
def test_the_spread_is_that_of_samples(name):
    head = ready(name)
    x_BD = batch([0] * 4).representation_BVD[:, 0]
    spread_B = head(x_BD).uncertainty["inverse_concentration" if name == "vmf" else "variance"]
    z_SBE = head.sample(x_BD, 5000, torch.Generator().manual_seed(1))
    if name == "vmf":
        wanted_B = 1 / head.posterior.posterior(x_BD).concentration
        assert torch.allclose(z_SBE.mean(0), head.posterior.posterior(x_BD).mean, atol=0.05)
    else:
        wanted_B = z_SBE.var(0).mean(-1)
    assert torch.allclose(spread_B, wanted_B, rtol=0.1)


def test_the_divergence_of_a_mixture_of_equal_parts_is_near_that_of_one():
    head = ready("mixture", samples=2000)
    x_BD = batch([0] * 3).representation_BVD[:, 0]
    with torch.no_grad():
        last = head.posterior.projection[-1]
        last.weight[3:], last.bias[3:] = last.weight[:3], last.bias[:3]
        last = head.posterior.network.network[-1]
        last.weight[3:], last.bias[3:] = last.weight[:3], last.bias[:3]
        loc_BKE, scale_BKE = head.posterior.components_of(x_BD)
        exact_B = (loc_BKE[:, 0] ** 2 + scale_BKE[:, 0] ** 2 - 1 - 2 * scale_BKE[:, 0].log()).sum(-1) / 2
        assert torch.allclose(head.posterior.draw(x_BD, 2000).divergence_B, exact_B, rtol=0.02)


def test_the_log_of_a_hopeless_match_is_finite():
    log_p, log_not = log_match(torch.tensor([[-1e4], [1e4]]))
    assert log_p.tolist() == [-1e4, 0]
    assert log_not.tolist() == [0, -1e4]


def test_what_is_learnt_and_what_is_refused():
    names = {name for name, _ in ready("vmf", learn_match=False).named_parameters()}
    assert not names & {"log_slope", "offset"}
    assert {"log_slope", "offset"} <= {name for name, _ in ready("gaussian").named_parameters()}
    with pytest.raises(UserError, match=r"head\.mean=projection"):
        ready("mixture", mean="frozen")
