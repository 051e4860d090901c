"""The linear classifier: its loss and scores against loops in float64."""

import math

import pytest
import torch

from pipeline.errors import UserError
from pipeline.heads import make_head
from pipeline.heads.base import RepresentationBatch, Summary


def ready(classes=4, width=5):
    head = make_head({"kind": "cross_entropy"})
    head.prepare(Summary(width=width, rows=9, num_classes=classes))
    return head


def probabilities(head, x_D):
    """Of one row, in Python's own floats."""
    weight_CD, bias_C = head.classifier.weight.tolist(), head.classifier.bias.tolist()
    logits = [b + sum(w * x for w, x in zip(row, x_D, strict=True)) for row, b in zip(weight_CD, bias_C, strict=True)]
    total = sum(math.exp(value) for value in logits)
    return [math.exp(value) / total for value in logits]


def test_loss_and_scores_by_loops():
    head = ready()
    x_BVD = torch.randn(6, 2, 5, generator=torch.Generator().manual_seed(0))
    label_B = torch.tensor([0, 3, 1, 1, 2, 0])
    losses = [
        -math.log(probabilities(head, x_D)[label])
        for x_VD, label in zip(x_BVD.tolist(), label_B.tolist(), strict=True)
        for x_D in x_VD
    ]
    batch = RepresentationBatch(representation_BVD=x_BVD, row_B=torch.arange(6), label_B=label_B)
    assert head.loss(batch).total.item() == pytest.approx(sum(losses) / 12, rel=1e-5)
    output = head(x_BVD[:, 0])
    for row, x_D in enumerate(x_BVD[:, 0].tolist()):
        p_C = probabilities(head, x_D)
        entropy = -sum(p * math.log(p) for p in p_C)
        assert output.uncertainty["entropy"][row].item() == pytest.approx(entropy, rel=1e-5)
        assert output.uncertainty["max_probability"][row].item() == pytest.approx(1 - max(p_C), rel=1e-4)


def test_rows_without_a_label_weigh_nothing():
    head = ready()
    x_BVD = torch.randn(4, 1, 5, generator=torch.Generator().manual_seed(1))
    labels = torch.tensor([2, 1, -1, -1])

    def loss(rows):
        return head.loss(
            RepresentationBatch(representation_BVD=x_BVD[:rows], row_B=torch.arange(rows), label_B=labels[:rows])
        ).total

    assert loss(4).item() == pytest.approx(loss(2).item() / 2)


def test_without_classes_there_is_nothing_to_learn():
    with pytest.raises(UserError, match="no classes"):
        ready(classes=0)
