"""SNGP: the precision is the direct sum, the variance that of Eq. 7, and the mean field has its real factor."""

from __future__ import annotations

import math

import pytest
import torch

from pipeline.heads import make_head
from pipeline.heads.base import RepresentationBatch, Summary
from pipeline.heads.sngp import bounded

WIDTH, CLASSES, FEATURES = 6, 4, 10


def ready(**settings):
    head = make_head({"kind": "sngp", "features": FEATURES, "ridge": 0.5, "length_scale": 0.7, **settings}, seed=3)
    head.prepare(Summary(width=WIDTH, rows=9, num_classes=CLASSES, scale=1.3))
    return head.eval()


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def batches(x_BD, *cuts):
    for rows in x_BD.split(cuts):
        yield RepresentationBatch(representation_BVD=rows[:, None], row_B=torch.arange(len(rows)))


def features(head, x_D):
    """φ of a row, in float64, layer by layer."""
    h_D = x_D.double() / 1.3
    for layer in head.layers:
        weight_DD = layer.weight.double()
        norm = torch.linalg.matrix_norm(weight_DD, 2)
        h_D = h_D + (weight_DD * min(1.0, 0.95 / norm) @ h_D + layer.bias.double()).relu()
    phase_F = head.frequency_FD.double() @ h_D + head.phase_F.double()
    return math.sqrt(2 / FEATURES) * phase_F.cos()


@pytest.mark.parametrize("layers", [0, 1])
@torch.no_grad()
def test_precision_variance_and_entropy_by_the_direct_sum(layers):
    head, seen_BD, x_BD = ready(layers=layers), draw(50, WIDTH), 2 * draw(5, WIDTH, seed=1)
    for layer in head.layers:  # power iterations are exact for a matrix of rank one
        layer.weight.data = 3 * torch.outer(draw(WIDTH, seed=5), draw(WIDTH, seed=6))
    head.finalise(batches(seen_BD, 20, 30))
    precision_FF = 0.5 * torch.eye(FEATURES, dtype=torch.float64)
    for x_D in seen_BD:
        precision_FF += torch.outer(features(head, x_D), features(head, x_D))
    output = head(x_BD)
    for row, x_D in enumerate(x_BD):
        phi_F = features(head, x_D)
        variance = float(phi_F @ torch.linalg.inv(precision_FF) @ phi_F)
        assert output.uncertainty["variance"][row].item() == pytest.approx(variance, rel=1e-4)
        logits_C = head.output.weight.double() @ phi_F + head.output.bias.double()
        p_C = torch.softmax(logits_C / math.sqrt(1 + math.pi / 8 * variance), -1)
        assert output.uncertainty["entropy"][row].item() == pytest.approx(float(-(p_C * p_C.log()).sum()), abs=1e-5)


def test_the_pass_counts_once_however_often_it_is_made():
    """Public code never resets its sum."""
    head, seen_BD, x_BD = ready(), draw(30, WIDTH), draw(3, WIDTH, seed=1)
    head.finalise(batches(seen_BD, 30))
    first = head(x_BD).uncertainty["variance"]
    head.finalise(batches(seen_BD, 10, 20))
    torch.testing.assert_close(head(x_BD).uncertainty["variance"], first, rtol=1e-5, atol=0)


def test_what_lies_far_has_more_variance():
    head = ready(features=200, layers=0, length_scale=0.2)
    head.finalise(batches(0.3 * draw(300, WIDTH), 300))
    near, far = (head(scale * draw(20, WIDTH, seed=2)).uncertainty["variance"].mean() for scale in (0.3, 5.0))
    assert far > 5 * near


def test_the_mean_field_factor_is_that_of_the_integral():
    """E σ(z) for z ~ N(m, v) is about σ(m/√(1 + πv/8)): two classes whose logits differ by a Gaussian."""
    z = 1.0 + 2.0**0.5 * draw(400_000).double()
    found, wanted = torch.sigmoid(z).mean().item(), 1 / (1 + math.exp(-1 / math.sqrt(1 + math.pi / 4)))
    assert found == pytest.approx(wanted, abs=0.01)


def test_the_spectral_norm_is_bounded_and_small_matrices_stay():
    start_D = torch.nn.functional.normalize(draw(64, seed=1), dim=0)
    weight_DD = draw(64, 64)
    assert 0.95 <= torch.linalg.matrix_norm(bounded(weight_DD, start_D, 0.95), 2) < 0.95 * 1.03
    small_DD = weight_DD * 0.9 / torch.linalg.matrix_norm(weight_DD, 2)
    assert torch.equal(bounded(small_DD, start_D, 0.95), small_DD)
