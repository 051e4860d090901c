"""InfoNCE against loops in float64, and what its score says on a toy."""

import math

import numpy as np
import pytest
import torch

from pipeline.heads import make_head
from pipeline.heads._spherical import contrast
from pipeline.heads.base import RepresentationBatch, Summary


def slow_contrast(similarity):
    """log of the positive's share, view by view; rows 2i and 2i+1 are views of one row."""
    found = []
    for i, row in enumerate(similarity):
        others = [math.exp(value) for j, value in enumerate(row) if j != i]
        found.append(row[i ^ 1] - math.log(sum(others)))
    return found


def batch(rows=5, width=6, seed=0):
    x_BVD = torch.randn(rows, 2, width, generator=torch.Generator().manual_seed(seed))
    return RepresentationBatch(representation_BVD=x_BVD, row_B=torch.arange(rows))


def ready(**settings):
    head = make_head({"kind": "info_nce", "dimension": 4, "projection_hidden": 8, **settings})
    head.prepare(Summary(width=6, rows=9, num_classes=2))
    return head


def test_the_share_of_the_positive_by_loops():
    similarity_NN = torch.randn(8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    assert contrast(similarity_NN).tolist() == pytest.approx(slow_contrast(similarity_NN.tolist()))
    many = torch.stack([similarity_NN, 2 * similarity_NN])
    assert torch.allclose(contrast(many)[1], contrast(2 * similarity_NN))


def test_the_loss_by_loops():
    head = ready(inverse_temperature=7.0)
    rows = batch()
    e = head.double().projection.network(rows.representation_BVD.flatten(0, 1).double()).detach().numpy()
    e = e / np.linalg.norm(e, axis=1, keepdims=True)
    wanted = -np.mean(slow_contrast((7 * e @ e.T).tolist()))
    assert ready(inverse_temperature=7.0).loss(rows).total.item() == pytest.approx(wanted, rel=1e-5)


def test_bfloat16_of_the_network_leaves_the_comparison_exact():
    head, rows = ready(projection_layers=0), batch()
    exact = head.loss(rows).total
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert head.loss(rows).total.item() == pytest.approx(exact.item(), rel=0.1)
        assert head.loss(rows).total.dtype == torch.float32


def test_the_score_is_the_inverse_length_of_the_projection():
    head, x_BD = ready(), batch().representation_BVD[:, 0]
    output = head(x_BD)
    length_B = torch.linalg.vector_norm(head.projection(x_BD), dim=-1)
    assert torch.allclose(output.uncertainty_B, 1 / length_B)
    assert torch.allclose(torch.linalg.vector_norm(output.embedding_BE, dim=-1), torch.ones(5))
