"""MC dropout: coordinates drop out in use too, at the rate asked for, and a row is answered the same twice."""

from __future__ import annotations

import math

import pytest
import torch

from pipeline.heads import make_head
from pipeline.heads.base import RepresentationBatch, Summary


def ready(width=6, seed=0, **settings):
    head = make_head({"kind": "mc_dropout", "samples": 4, "rate": 0.25, **settings}, seed=seed)
    head.prepare(Summary(width=width, rows=9, num_classes=3))
    return head.eval()


def test_dropout_is_real_in_use():
    head = ready(width=2000, samples=10)
    dropped = (head.mask_SD == 0).double().mean(1)
    assert (dropped - 0.25).abs().max() < 4 * math.sqrt(0.25 * 0.75 / 2000)
    assert torch.equal(head.mask_SD[head.mask_SD > 0].unique(), torch.tensor([1 / 0.75]))
    assert len(head.mask_SD.unique(dim=0)) == 10  # no two passes alike
    x_BD = torch.randn(5, 2000, generator=torch.Generator().manual_seed(0))
    assert head(x_BD).uncertainty["jensen_shannon"].min() > 0
    assert not torch.equal(head(x_BD).uncertainty["entropy"], ready(2000, 1)(x_BD).uncertainty["entropy"])


def test_scores_by_loops():
    head = ready()
    x_BD = 2 * torch.randn(5, 6, generator=torch.Generator().manual_seed(0))
    output = head(x_BD)
    weight_CD, bias_C = head.classifier.weight.tolist(), head.classifier.bias.tolist()
    for row, x_D in enumerate(x_BD.tolist()):
        passes = []
        for mask_D in head.mask_SD.tolist():
            weights = [
                math.exp(b + sum(w * m * x for w, m, x in zip(w_D, mask_D, x_D, strict=True)))
                for w_D, b in zip(weight_CD, bias_C, strict=True)
            ]
            passes.append([weight / sum(weights) for weight in weights])
        mean = [sum(p) / 4 for p in zip(*passes, strict=True)]
        entropies = [-sum(p * math.log(p) for p in one) for one in (mean, *passes)]
        assert output.uncertainty["entropy"][row].item() == pytest.approx(entropies[0], abs=1e-6)
        divergence = entropies[0] - sum(entropies[1:]) / 4
        assert output.uncertainty["jensen_shannon"][row].item() == pytest.approx(divergence, abs=1e-6)


def test_the_loss_drops_out_anew_for_every_row_and_step():
    """Over many draws the mean of inputs is that without dropout; all rows alike here, so a mask shared by the rows
    would show as a loss that is the same as that of one row."""
    head = ready()
    x_BVD = torch.ones(64, 1, 6)
    batch = RepresentationBatch(representation_BVD=x_BVD, row_B=torch.arange(64), label_B=torch.zeros(64).long())
    one = RepresentationBatch(representation_BVD=x_BVD[:1], row_B=torch.arange(1), label_B=torch.zeros(1).long())
    losses = [[head.loss(rows).total.item() for _ in range(20)] for rows in (batch, one)]
    spreads = [torch.tensor(values).std().item() for values in losses]
    assert 0 < spreads[0] < spreads[1] / 3
