"""PFE: the mutual likelihood score is a log density, and the loss is its mean over pairs of a group."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

from pipeline.heads import make_head
from pipeline.heads.base import RepresentationBatch, Summary
from pipeline.heads.pfe import mutual_likelihood


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_the_score_is_the_integral_of_the_product():
    x = torch.linspace(-12, 12, 100_001, dtype=torch.float64)
    normal = torch.distributions.Normal
    density = [normal(loc, v**0.5).log_prob(x).exp() for loc, v in ((0.4, 1.3), (-1, 0.6))]
    wanted = torch.trapezoid(density[0] * density[1], x).log()
    values = [torch.tensor([value], dtype=torch.float64) for value in (0.4, 1.3, -1, 0.6)]
    torch.testing.assert_close(mutual_likelihood(*values), wanted)


def test_loss_pair_by_pair():
    head = make_head({"kind": "pfe", "rows_per_class": 3})
    head.prepare(Summary(width=5, rows=9, num_classes=3))
    x_BD = draw(9, 5).float()
    variance_BD = head.variance(x_BD).detach().double()
    wanted = 0.0
    for start in range(0, 9, 3):
        for one, other in itertools.combinations(range(start, start + 3), 2):
            for d in range(5):
                apart = x_BD[one, d].double() / x_BD[one].double().norm() - x_BD[other, d] / x_BD[other].double().norm()
                total = variance_BD[one, d] + variance_BD[other, d]
                wanted += float(apart**2 / total + total.log() + math.log(2 * math.pi)) / 2 / 9
    batch = RepresentationBatch(representation_BVD=x_BD[:, None], row_B=torch.arange(9))
    assert head.loss(batch).total.item() == pytest.approx(wanted, rel=1e-6)
    score_B = head(x_BD).uncertainty_B.detach().double()
    torch.testing.assert_close(score_B, 5 / (1 / variance_BD).sum(-1))


def test_the_best_variance_is_half_the_squared_distance():
    """Of two rows with σ² each, E = 1: −MLS is least at 2σ² = (μ_i − μ_j)²."""
    variance = torch.linspace(0.01, 2, 2000, dtype=torch.float64)[:, None]
    score = mutual_likelihood(torch.tensor([0.0]), variance, torch.tensor([1.2]), variance)
    assert variance[score.argmax()].item() == pytest.approx(1.2**2 / 2, abs=2e-3)
