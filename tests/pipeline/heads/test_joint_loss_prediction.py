"""Joint loss prediction against its formula in numpy, and whose gradient changes what."""

import numpy as np
import pytest
import torch

from pipeline.errors import UserError
from pipeline.heads import make_head
from pipeline.heads.base import RepresentationBatch, Summary


def ready(classes=3, **settings):
    head = make_head({"kind": "joint_loss_prediction", "dimension": 4, "hidden": 8, "projection_hidden": 5, **settings})
    head.prepare(Summary(width=6, rows=9, num_classes=classes))
    return head


def batch():
    x_BVD = torch.randn(4, 1, 6, generator=torch.Generator().manual_seed(0))
    return RepresentationBatch(representation_BVD=x_BVD, row_B=torch.arange(4), label_B=torch.tensor([0, 2, -1, 1]))


def test_the_loss_by_hand():
    """Eq. 8; the row without a label counts as 0 in both terms."""
    head, rows = ready(balance=0.3), batch()
    output = head(rows.representation_BVD[:, 0])
    z, weight, bias = (
        value.detach().double().numpy() for value in (output.embedding_BE, head.classifier.weight, head.classifier.bias)
    )
    logits = z @ weight.T + bias
    total = 0.0
    for row, label in enumerate(rows.label_B.tolist()):
        if label >= 0:
            task_loss = np.log(np.exp(logits[row]).sum()) - logits[row, label]
            total += task_loss + 0.3 * (output.uncertainty_B[row].item() - task_loss) ** 2
    assert head.loss(rows).total.item() == pytest.approx(total / 4, rel=1e-5)


def test_both_losses_change_the_projection_but_the_prediction_does_not_change_the_classifier():
    """Not a StopGrad; only the cross-entropy inside of the square is detached."""

    def gradients(balance):
        head = ready(balance=balance)
        head.loss(batch()).total.backward()
        return head.projection.network[0].weight.grad, head.classifier.weight.grad

    (alone, classifier_alone), (joint, classifier_joint) = gradients(0.0), gradients(0.9)
    assert not torch.allclose(alone, joint)
    assert torch.allclose(classifier_alone, classifier_joint)


def test_without_classes_it_is_refused():
    with pytest.raises(UserError, match="knows no classes"):
        ready(classes=0)
