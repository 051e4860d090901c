"""HET-XL: covariance, determinant, loss and scores against plain linear algebra in float64."""

from __future__ import annotations

import math

import pytest
import torch

from pipeline.heads import make_head
from pipeline.heads.base import RepresentationBatch, Summary

WIDTH, CLASSES = 5, 4


def ready(**settings):
    head = make_head({"kind": "het_xl", "rank": 2, "samples": 3, "temperature": 1.7, "initial_scale": 0.5, **settings})
    head.prepare(Summary(width=WIDTH, rows=9, num_classes=CLASSES, scale=1.3))
    return head.eval()


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@torch.no_grad()
def parts_of(head, x_D):
    """V (R, D) and d (D,) of one row, from the weights."""
    layer, unit = head.covariance, 0.5 * 1.3
    raw = (layer.weight.double() @ (x_D.double() / 1.3) + layer.bias.double()).view(3, WIDTH)
    return unit * raw[:2], (unit * torch.log1p(raw[2].exp()) / math.log(2)).square()


def test_the_score_is_the_determinant_and_samples_have_the_covariance():
    head, x_BD = ready(), draw(3, WIDTH)
    z_SBD = head.sample(x_BD, 40_000, torch.Generator().manual_seed(0)).double()
    for row in range(3):
        factor_RD, diagonal_D = parts_of(head, x_BD[row])
        covariance_DD = factor_RD.T @ factor_RD + diagonal_D.diag()
        found = head(x_BD).uncertainty["log_determinant"][row].detach()
        torch.testing.assert_close(found.double(), torch.logdet(covariance_DD), rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(z_SBD[:, row].T.cov(), covariance_DD, rtol=0, atol=0.05 * covariance_DD.max())
        torch.testing.assert_close(z_SBD[:, row].mean(0), x_BD[row].double(), rtol=0, atol=0.03)


@torch.no_grad()
def mean_probability(head, x_D, low_rank_SR, noise_SD):
    """E_ε softmax_τ(W(φ + ε) + b), (C,), sample by sample."""
    factor_RD, diagonal_D = parts_of(head, x_D)
    total = torch.zeros(CLASSES, dtype=torch.float64)
    for low_R, noise_D in zip(low_rank_SR.double(), noise_SD.double(), strict=True):
        z_D = x_D.double() + factor_RD.T @ low_R + diagonal_D.sqrt() * noise_D
        logits_C = head.classifier.weight.double() @ z_D + head.classifier.bias.double()
        total += torch.softmax(logits_C / 1.7, -1)
    return total / len(noise_SD)


def test_loss_and_entropy_sample_by_sample():
    head, x_BD, label_B = ready(), draw(6, WIDTH), torch.tensor([0, 3, 1, 1, 2, 0])
    torch.manual_seed(4)
    low_rank_SBR, noise_SBD = torch.randn(3, 6, 2), torch.randn(3, 6, WIDTH)
    torch.manual_seed(4)
    batch = RepresentationBatch(representation_BVD=x_BD[:, None], row_B=torch.arange(6), label_B=label_B)
    loss, entropy_B = head.loss(batch).total, head(x_BD).uncertainty["entropy"]
    wanted = 0.0
    for row, label in enumerate(label_B.tolist()):
        p_C = mean_probability(head, x_BD[row], low_rank_SBR[:, row], noise_SBD[:, row])
        wanted -= float(p_C[label].log()) / 6
        p_C = mean_probability(head, x_BD[row], head.low_rank_noise_SR, head.noise_SD)
        assert entropy_B[row].item() == pytest.approx(float(-(p_C * p_C.log()).sum()), abs=1e-6)
    assert loss.item() == pytest.approx(wanted, rel=1e-6)


def test_a_wide_covariance_makes_unsure():
    head, x_BD = ready(samples=64), 3 * draw(4, WIDTH)
    narrow = head(x_BD).uncertainty["entropy"]
    with torch.no_grad():
        head.covariance.weight.mul_(0)
        head.covariance.bias[-WIDTH:] = 20.0
    assert head(x_BD).uncertainty["entropy"].mean() > narrow.mean() + 0.1
