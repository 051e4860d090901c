"""MCInfoNCE against loops in float64, and on a toy with rows that are clear and rows that are not."""

import math

import numpy as np
import pytest
import torch

from pipeline.heads import make_head
from pipeline.heads.base import RepresentationBatch, Summary
from pipeline.heads.mc_info_nce import log_shares, reduce


def ready(width=6, **settings):
    head = make_head({"kind": "mc_info_nce", "hidden": 16, "layers": 1, "samples": 4, **settings})
    head.prepare(Summary(width=width, rows=9, num_classes=2))
    return head


@pytest.mark.parametrize("reduction", ["log_mean", "mean_log"])
def test_the_loss_by_loops(reduction):
    """App. B Eq. 7 without 1/M, and App. C Eq. 2."""
    rows, head = 4, ready(reduction=reduction, inverse_temperature=5.0)
    x_BVD = torch.randn(rows, 2, 6, generator=torch.Generator().manual_seed(0))
    torch.manual_seed(3)
    found = head.loss(RepresentationBatch(representation_BVD=x_BVD, row_B=torch.arange(rows))).total.item()
    torch.manual_seed(3)
    z = head.posterior(x_BVD.flatten(0, 1)).rsample((4,)).double().detach().numpy()
    losses = []
    for view in range(2 * rows):
        shares = []
        for s in range(4):
            likes = {j: math.exp(5 * float(z[s, view] @ z[s, j])) for j in range(2 * rows) if j != view}
            shares.append(likes[view ^ 1] / sum(likes.values()))
        losses.append(-math.log(np.mean(shares)) if reduction == "log_mean" else -np.mean(np.log(shares)))
    assert found == pytest.approx(np.mean(losses), rel=1e-5)


def test_making_similarities_again_gives_the_gradient_of_keeping_them():
    z_SNE = torch.randn(3, 6, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).requires_grad_()
    assert torch.autograd.gradcheck(lambda z: log_shares(z.float().double(), 2.0), z_SNE, eps=1e-3, atol=1e-3)


def test_the_log_of_a_mean_is_at_least_the_mean_of_logs():
    log_share_SN = -torch.rand(5, 7, generator=torch.Generator().manual_seed(2))
    assert (reduce(log_share_SN, "log_mean") >= reduce(log_share_SN, "mean_log")).all()
    assert torch.equal(reduce(log_share_SN[:1], "mean_log"), log_share_SN[0])


def toy(rows, generator):
    """Two views around a direction: near it (length 1) or anywhere about it (length 2), half of the rows each."""
    base_B1D = torch.nn.functional.normalize(torch.randn(rows, 1, 6, generator=generator), dim=-1)
    noisy_B = torch.arange(rows) % 2 == 1
    spread_B11 = torch.where(noisy_B, 1.0, 0.05)[:, None, None]
    x_BVD = base_B1D + spread_B11 * torch.randn(rows, 2, 6, generator=generator)
    length_B11 = torch.where(noisy_B, 2.0, 1.0)[:, None, None]
    return torch.nn.functional.normalize(x_BVD, dim=-1) * length_B11, noisy_B


def test_rows_whose_views_differ_get_the_larger_uncertainty():
    head, generator = ready(reads="representation"), torch.Generator().manual_seed(0)
    optimizer = torch.optim.Adam(head.parameters(), lr=2e-2)
    torch.manual_seed(0)
    for _ in range(80):
        x_BVD, _ = toy(32, generator)
        optimizer.zero_grad()
        head.loss(RepresentationBatch(representation_BVD=x_BVD, row_B=torch.arange(32))).total.backward()
        optimizer.step()
    x_BVD, noisy_B = toy(64, generator)
    uncertainty_B = head(x_BVD[:, 0]).uncertainty_B
    assert uncertainty_B[noisy_B].median() > 2 * uncertainty_B[~noisy_B].median()
