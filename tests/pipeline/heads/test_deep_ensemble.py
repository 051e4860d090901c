"""The ensemble: its losses and scores against loops in Python's floats."""

from __future__ import annotations

import math

import pytest
import torch

from pipeline.heads import make_head
from pipeline.heads.base import RepresentationBatch, Summary


def ready(**settings):
    head = make_head({"kind": "deep_ensemble", "members": 3, **settings})
    head.prepare(Summary(width=5, rows=9, num_classes=4))
    return head


def members_of(head, x_D):
    """Class probabilities of each member."""
    found = []
    for layer in head.classifiers:
        rows = zip(layer.weight.tolist(), layer.bias.tolist(), strict=True)
        weights = [math.exp(bias + sum(w * x for w, x in zip(row, x_D, strict=True))) for row, bias in rows]
        found.append([weight / sum(weights) for weight in weights])
    return found


@pytest.mark.parametrize("objective", ["average", "separate"])
def test_loss_by_loops(objective):
    head = ready(objective=objective)
    x_BVD = torch.randn(6, 1, 5, generator=torch.Generator().manual_seed(0))
    label_B = torch.tensor([0, 3, 1, 1, 2, 0])
    wanted = 0.0
    for x_D, label in zip(x_BVD[:, 0].tolist(), label_B.tolist(), strict=True):
        p = [member[label] for member in members_of(head, x_D)]
        wanted += -math.log(sum(p) / 3) if objective == "average" else -sum(math.log(value) for value in p) / 3
    batch = RepresentationBatch(representation_BVD=x_BVD, row_B=torch.arange(6), label_B=label_B)
    assert head.loss(batch).total.item() == pytest.approx(wanted / 6, rel=1e-6)


def test_scores_by_loops():
    head = ready()
    x_BD = 2 * torch.randn(6, 5, generator=torch.Generator().manual_seed(0))
    output = head(x_BD)
    for row, x_D in enumerate(x_BD.tolist()):
        members = members_of(head, x_D)
        mean = [sum(p) / 3 for p in zip(*members, strict=True)]
        entropies = [-sum(p * math.log(p) for p in one) for one in (mean, *members)]
        assert output.uncertainty["entropy"][row].item() == pytest.approx(entropies[0], abs=1e-6)
        assert output.uncertainty["jensen_shannon"][row].item() == pytest.approx(
            entropies[0] - sum(entropies[1:]) / 3, abs=1e-6
        )


def test_members_that_agree_have_no_divergence():
    head = ready()
    for layer in head.classifiers:
        layer.load_state_dict(head.classifiers[0].state_dict())
    x_BD = torch.randn(6, 5, generator=torch.Generator().manual_seed(1))
    assert head(x_BD).uncertainty["jensen_shannon"].max() < 1e-6
