"""UMM: its three losses against loops and autograd-free formulas, its histogram against exact average precision."""

from __future__ import annotations

import math

import pytest
import torch
from sklearn.metrics import average_precision_score
from torch.distributions import MultivariateNormal, kl_divergence

from pipeline.heads import make_head
from pipeline.heads.base import RepresentationBatch, Summary
from pipeline.heads.umm import histogram_precision, ranking_loss, symmetric_divergence

WIDTH = 5


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def ready(**settings):
    head = make_head({"kind": "umm", "dimension": 3, "temperature": 0.5, "initial_variance": 0.3, **settings})
    head.prepare(Summary(width=WIDTH, rows=9, num_classes=0))
    return head


def batch_of(x_BVD, progress=0.0):
    rows = len(x_BVD)
    return RepresentationBatch(
        representation_BVD=x_BVD, row_B=torch.arange(rows), progress_B=torch.full((rows,), progress)
    )


@pytest.mark.parametrize("posterior", ["gaussian", "mixture"])
def test_loss_set_by_set(posterior):
    head, x_BVD = ready(posterior=posterior, candidates=[2], ranking_rows=2, bins=7), draw(4, 2, WIDTH).float()
    components = 1 if posterior == "gaussian" else 2
    torch.manual_seed(3)
    noises = [torch.randn(2, 4, components, 3) for _ in range(2)]
    torch.manual_seed(3)
    output = head.loss(batch_of(x_BVD))
    sets, found = [], []
    for view in range(2):
        loc, variance = (value.detach().double() for value in head._parameters_of(x_BVD[:, view]))
        found.append((loc, variance))
        z = loc + variance.sqrt() * noises[view]
        unit = torch.nn.functional.normalize(z, dim=-1)
        sets.append([list(unit[:, row].flatten(0, 1)) for row in range(4)])

    def similarity(one, other):
        return sum(float(u @ v) for u in one for v in other) / len(one) ** 2

    softmax = 0.0
    for row in range(4):
        logits = [similarity(sets[0][other], sets[1][row]) / 0.5 for other in range(4)]
        softmax -= (logits[row] - math.log(sum(math.exp(value) for value in logits))) / 4
    consistency = 0.0
    for row in range(4):
        for k in range(components):
            one, other = (MultivariateNormal(loc[row, k], variance[row, k].diag()) for loc, variance in found)
            both = kl_divergence(one, other) + kl_divergence(other, one)
            consistency += float(both) / (4 * components)
    precisions = []
    for rows in ((0, 1), (2, 3)):
        answers = [(row, z) for row in rows for z in sets[0][row] + sets[1][row]]
        precisions += [precision_by_loops(query, answers, 7) for query in answers]
    ranking = 1 - sum(precisions) / len(precisions)
    assert output.parts["softmax"].item() == pytest.approx(softmax, rel=1e-5)
    assert output.parts["consistency"].item() == pytest.approx(consistency, rel=1e-5)
    assert output.parts["ranking"].item() == pytest.approx(ranking, rel=1e-4)
    assert output.total.item() == pytest.approx(softmax + 0.2 * consistency + 2 * ranking, rel=1e-5)


def precision_by_loops(query, answers, bins):
    row, z = query
    places = [(other == row, (1 - min(1.0, float(z @ w))) * bins / 2) for other, w in answers]
    value, seen, seen_right = 0.0, 0.0, 0.0
    for knot in range(bins + 1):
        shares = [(right, max(0.0, 1 - abs(place - knot))) for right, place in places]
        here = sum(share for right, share in shares if right)
        seen, seen_right = seen + sum(share for _, share in shares), seen_right + here
        value += here * seen_right / seen if seen else 0.0
    return value / sum(right for right, _ in places)


def test_histogram_precision_tends_to_the_exact_one():
    cosine_QQ = torch.stack([torch.randperm(40, generator=torch.Generator().manual_seed(row)) for row in range(20)])
    cosine_QQ, right_QQ = cosine_QQ.double() / 20 - 1, draw(20, 40, seed=1) > 0.5
    pairs = zip(right_QQ.numpy(), cosine_QQ.numpy(), strict=True)
    wanted_Q = torch.tensor([average_precision_score(right, cosine) for right, cosine in pairs], dtype=torch.float64)
    errors = [(histogram_precision(cosine_QQ, right_QQ, bins) - wanted_Q).abs().max() for bins in (4, 12, 28, 40)]
    assert errors[0] > errors[1] > errors[2] > errors[3]
    assert errors[3] < 1e-12  # then each answer has a knot of its own


def test_what_is_ranked_right_costs_nothing():
    z_BME = torch.nn.functional.normalize(torch.eye(4)[:, None] + 0.01 * draw(4, 3, 4).float(), dim=-1)
    assert ranking_loss(z_BME, 50) < 0.01 < ranking_loss(z_BME.transpose(0, 1)[:, :3], 50)


def test_the_divergence_has_no_logarithm_left():
    values = [draw(3, 4), draw(3, 4, seed=1).exp(), draw(3, 4, seed=2), draw(3, 4, seed=3).exp()]
    for row, found in enumerate(symmetric_divergence(*values)):
        one, other = (MultivariateNormal(loc[row], variance[row].diag()) for loc, variance in (values[:2], values[2:]))
        torch.testing.assert_close(found, kl_divergence(one, other) + kl_divergence(other, one))


def test_fewer_samples_later(monkeypatch):
    """The schedule is of equal parts of training."""
    head, x_BVD, drawn, randn = ready(candidates=[5, 3, 1]), draw(4, 2, WIDTH).float(), [], torch.randn
    monkeypatch.setattr(torch, "randn", lambda *shape, **options: drawn.append(shape[0]) or randn(*shape, **options))
    for progress in (0.0, 0.33, 0.34, 0.66, 0.67, 0.999, 1.0):
        head.loss(batch_of(x_BVD, progress))
    assert drawn[::2] == [5, 5, 3, 3, 1, 1, 1]
