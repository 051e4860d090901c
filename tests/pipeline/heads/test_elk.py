"""The expected likelihood kernel against integrals over the circle and loops."""

import math

import numpy as np
import pytest
import torch
from scipy.special import iv

from pipeline.errors import UserError
from pipeline.heads import make_head
from pipeline.heads.base import RepresentationBatch, Summary
from tests.pipeline.heads.test_info_nce import slow_contrast


def ready(width=2, classes=3, **settings):
    head = make_head({"kind": "elk", "hidden": 8, "layers": 1, **settings})
    head.prepare(Summary(width=width, rows=9, num_classes=classes))
    return head


def likelihood(a, b):
    """∫ of two vMF densities on the circle, each (direction, κ), by 4,000 equal steps."""
    turn = np.arange(4000) * (2 * math.pi / 4000)
    circle = np.stack([np.cos(turn), np.sin(turn)], axis=1)
    densities = [np.exp(kappa * (circle @ loc)) / (2 * math.pi * iv(0, kappa)) for loc, kappa in (a, b)]
    return float((densities[0] * densities[1]).sum() * (2 * math.pi / 4000))


def rows_of(head, x_ND):
    posterior = head.posterior(x_ND)
    return list(zip(posterior.loc.double().detach().numpy(), posterior.concentration.tolist(), strict=True))


def test_supervised_by_integrals():
    head = ready(class_concentration=3.0)
    x_BVD = torch.randn(5, 1, 2, generator=torch.Generator().manual_seed(0))
    label_B = torch.tensor([0, 2, 1, -1, 0])
    length_C = torch.linalg.vector_norm(head.class_CE, dim=-1).tolist()
    directions = head.class_CE.double().detach().numpy() / np.array(length_C)[:, None]
    classes = list(zip(directions, [3 * length for length in length_C], strict=True))
    losses = []
    for row, label in zip(rows_of(head, x_BVD[:, 0]), label_B.tolist(), strict=True):
        likes = [likelihood(row, one) for one in classes]
        losses.append(0 if label < 0 else -math.log(likes[label] / sum(likes)))
    batch = RepresentationBatch(representation_BVD=x_BVD, row_B=torch.arange(5), label_B=label_B)
    assert head.loss(batch).total.item() == pytest.approx(np.mean(losses), rel=1e-5)


def test_contrastive_by_integrals():
    head = ready(objective="contrastive", inverse_temperature=1.5)
    x_BVD = torch.randn(3, 2, 2, generator=torch.Generator().manual_seed(1))
    rows = rows_of(head, x_BVD.flatten(0, 1))
    similarity = [[1.5 * math.log(likelihood(a, b)) for b in rows] for a in rows]
    batch = RepresentationBatch(representation_BVD=x_BVD, row_B=torch.arange(3))
    assert head.loss(batch).total.item() == pytest.approx(-np.mean(slow_contrast(similarity)), rel=1e-5)


def test_rows_of_clear_classes_get_the_smaller_uncertainty():
    """Rows of length 1 lie at their class, rows of length 2 anywhere: κ is learnt from labels alone."""
    generator = torch.Generator().manual_seed(0)
    head = ready(width=6, classes=4, hidden=16, reads="representation")
    optimizer = torch.optim.Adam(head.parameters(), lr=2e-2)
    centre_CD = torch.eye(4, 6)

    def draw(rows):
        label_B = torch.randint(4, (rows,), generator=generator)
        clear_B = torch.arange(rows) % 2 == 0
        noise_BD = torch.randn(rows, 6, generator=generator)
        x_BD = torch.where(clear_B[:, None], centre_CD[label_B] + 0.1 * noise_BD, noise_BD)
        return torch.nn.functional.normalize(x_BD, dim=-1) * torch.where(clear_B, 1.0, 2.0)[:, None], label_B, clear_B

    for _ in range(100):
        x_BD, label_B, _ = draw(64)
        optimizer.zero_grad()
        head.loss(
            RepresentationBatch(representation_BVD=x_BD[:, None], row_B=torch.arange(64), label_B=label_B)
        ).total.backward()
        optimizer.step()
    x_BD, _, clear_B = draw(64)
    uncertainty_B = head(x_BD).uncertainty_B
    assert uncertainty_B[~clear_B].median() > 2 * uncertainty_B[clear_B].median()


def test_without_classes_one_is_told_of_the_other_objective():
    with pytest.raises(UserError, match="objective=contrastive"):
        ready(classes=0)
    ready(classes=0, objective="contrastive")
