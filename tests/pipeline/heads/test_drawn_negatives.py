"""Contrastive losses against negatives that were drawn apart from the batch, by loops in float64."""

import math

import numpy as np
import pytest
import torch

from pipeline.distributions import VonMisesFisher, expected_likelihood
from pipeline.heads import elk, info_nce, mc_info_nce


def distributions(rows, seed):
    generator = torch.Generator().manual_seed(seed)
    loc_NE = torch.nn.functional.normalize(torch.randn(rows, 4, generator=generator), dim=-1)
    return VonMisesFisher(loc_NE, 5 + 20 * torch.rand(rows, generator=generator))


def slow_loss(positive_N, negative_NM):
    """−mean log of the positive's share."""
    shares = [math.exp(p) / (math.exp(p) + sum(map(math.exp, n))) for p, n in zip(positive_N, negative_NM, strict=True)]
    return -float(np.mean(np.log(shares)))


def by_cosine(z, negative, temperature):
    positive_N = [temperature * float(z[i] @ z[i ^ 1]) for i in range(len(z))]
    return positive_N, [[temperature * float(one @ other) for other in negative] for one in z]


def test_info_nce():
    views, negatives = distributions(6, seed=0).loc, distributions(5, seed=1).loc
    found = -info_nce.log_shares(views, 3.0, negatives).mean().item()
    wanted = slow_loss(*by_cosine(views.double().numpy(), negatives.double().numpy(), 3.0))
    assert found == pytest.approx(wanted, rel=1e-5)


@pytest.mark.parametrize(("reduction", "averaged"), [("log_mean", False), ("mean_log", False), ("log_mean", True)])
def test_mc_info_nce(reduction, averaged):
    config = mc_info_nce.Config(inverse_temperature=3.0, samples=4, reduction=reduction)
    views, negatives = distributions(6, seed=0), distributions(5, seed=1)
    torch.manual_seed(2)
    found = mc_info_nce.contrastive_loss(views, config, negatives, averaged=averaged).item()
    torch.manual_seed(2)
    z, other = views.rsample((4,)).double().numpy(), negatives.rsample((4,)).double().numpy()
    share_SN = []
    for s in range(4):
        positive_N, negative_NM = by_cosine(z[s], other[s], 3.0)
        if averaged:  # as one: five that are each a fifth as likely
            negative_NM = [[value - math.log(5) for value in row] for row in negative_NM]
        share_SN.append([math.exp(-slow_loss([p], [n])) for p, n in zip(positive_N, negative_NM, strict=True)])
    wanted = -np.log(np.mean(share_SN, axis=0)) if reduction == "log_mean" else -np.log(share_SN).mean(axis=0)
    assert found == pytest.approx(np.mean(wanted), rel=1e-5)


def test_elk():
    views, negatives = distributions(6, seed=0), distributions(5, seed=1)

    def likeness(a, i, b, j):
        cosine = (a.loc[i].double() * b.loc[j].double()).sum()
        return -2 * expected_likelihood(a.concentration[i].double(), b.concentration[j].double(), cosine, 4).item()

    wanted = slow_loss(
        [likeness(views, i, views, i ^ 1) for i in range(6)],
        [[likeness(views, i, negatives, j) for j in range(5)] for i in range(6)],
    )
    config = elk.Config(objective="contrastive", inverse_temperature=2.0)
    assert elk.contrastive_loss(views, config, negatives).item() == pytest.approx(wanted, rel=1e-5)
