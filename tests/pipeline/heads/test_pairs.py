"""Which rows are contrasted, for every way of choosing them."""

import pytest
import torch

from pipeline.heads import elk, make_head, mc_info_nce
from pipeline.heads._pairs import PairsConfig, pair_needs, pairs_of
from pipeline.heads._spherical import contrast
from pipeline.heads.base import RepresentationBatch, Summary
from tests.pipeline.heads.test_drawn_negatives import distributions


def made(rows, needs, labels=None):
    """Row r, view v is (r, v)."""
    row_B11, view_1V1 = torch.arange(rows).view(-1, 1, 1), torch.arange(needs.views).view(1, -1, 1)
    shape = (rows, needs.views, 1)
    x_BVD = torch.cat([row_B11.expand(shape), view_1V1.expand(shape)], dim=-1).float()
    label_B = torch.tensor(labels) if needs.labels else None
    return RepresentationBatch(representation_BVD=x_BVD, row_B=torch.arange(rows), label_B=label_B)


def pairs(rows, labels=None, **settings):
    needs = pair_needs(PairsConfig(**settings), draws=False)
    return needs, pairs_of(made(rows, needs, labels), PairsConfig(**settings))


def test_views_in_batch():
    needs, found = pairs(3)
    assert (needs.views, needs.together, needs.labels) == (2, None, False)
    assert found.x_ND.tolist() == [[0, 0], [0, 1], [1, 0], [1, 1], [2, 0], [2, 1]]
    assert found.label_N is None
    assert found.negative_PMD is None


def test_views_sampled():
    """A row and M others behind it, which are another draw for each row; what fills no group is left out."""
    needs, found = pairs(8, negatives="sampled", num_negatives=2)
    assert (needs.views, needs.together, needs.group) == (2, 3, 1)
    assert found.x_ND.tolist() == [[0, 0], [0, 1], [3, 0], [3, 1]]
    assert found.negative_PMD.tolist() == [[[1, 0], [2, 0]], [[4, 0], [5, 0]]]


def test_class_in_batch():
    needs, found = pairs(4, labels=[3, 3, 1, 1], positives="class")
    assert (needs.views, needs.sampling, needs.group) == (1, "class_balanced", 2)
    assert found.x_ND[:, 0].tolist() == [0, 1, 2, 3]
    assert found.label_N.tolist() == [3, 3, 1, 1]


def test_class_sampled():
    needs, found = pairs(10, positives="class", negatives="sampled", num_negatives=3)
    assert (needs.sampling, needs.negatives, needs.group, needs.together) == ("triplets", 3, 5, 5)
    assert found.x_ND[:, 0].tolist() == [0, 1, 5, 6]
    assert found.negative_PMD[..., 0].tolist() == [[2, 3, 4], [7, 8, 9]]
    assert pair_needs(PairsConfig(positives="class", negatives="sampled"), draws=True).together is None


def test_rows_of_a_pairs_own_class_are_no_negatives():
    similarity_NN = torch.randn(6, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    label_N = torch.tensor([0, 0, 1, 1, 0, 0])
    found_N = contrast(similarity_NN, label_N)
    for row in range(6):
        against = [j for j in range(6) if j == (row ^ 1) or label_N[j] != label_N[row]]
        wanted = similarity_NN[row, row ^ 1] - torch.logsumexp(similarity_NN[row, against], 0)
        assert found_N[row].item() == pytest.approx(wanted.item())


@pytest.mark.parametrize("module", [elk, mc_info_nce])
def test_negatives_of_a_pair_are_for_it_alone(module):
    """The loss is the mean over pairs of each with its own; MCInfoNCE: κ is so large that a sample is the direction."""
    views, own = distributions(4, seed=0), distributions(6, seed=1)
    config = module.Config(inverse_temperature=2.0)
    if module is mc_info_nce:
        views.concentration, own.concentration = torch.full((4,), 1e6), torch.full((6,), 1e6)
    apart = type(own)(own.loc.view(2, 3, 4), own.concentration.view(2, 3))
    found = module.contrastive_loss(views, config, apart).item()
    each = [
        module.contrastive_loss(type(views)(loc_2E, kappa_2), config, type(own)(loc_ME, kappa_M)).item()
        for loc_2E, kappa_2, loc_ME, kappa_M in zip(
            views.loc.view(2, 2, 4), views.concentration.view(2, 2), apart.loc, apart.concentration, strict=True
        )
    ]
    assert found == pytest.approx(sum(each) / 2, rel=1e-2)
    assert abs(each[0] - each[1]) > 0.05  # so that it matters whose they are


@pytest.mark.parametrize("kind", ["elk", "mc_info_nce"])
@pytest.mark.parametrize("rows", [1, 3])
def test_in_a_batch_smaller_than_a_group_there_are_fewer_negatives(kind, rows):
    settings = {"objective": "contrastive"} if kind == "elk" else {}
    head = make_head({"kind": kind, "negatives": "sampled", "hidden": 4, **settings})
    head.prepare(Summary(width=2, rows=9, num_classes=2))
    total = head.loss(made(rows, head.needs)).total
    total.backward()
    assert total.item() == 0 if rows == 1 else total.item() > 0
    assert all(parameter.grad.isfinite().all() for parameter in head.parameters())
