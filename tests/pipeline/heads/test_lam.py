"""LAM: its Hessians against autograd's, for every definition; posterior, online recursion and κ against direct sums."""

from __future__ import annotations

import pytest
import torch
from torch.autograd.functional import hessian as autograd_hessian
from torch.nn.functional import normalize

from pipeline.heads import make_head
from pipeline.heads._contrastive import diagonal, factors, side
from pipeline.heads._triplets import split
from pipeline.heads.base import RepresentationBatch, Summary
from pipeline.heads.lam import contrastive, within
from pipeline.training.config import TrainingConfig
from pipeline.training.members import Member
from pipeline.training.updates import Updates

E, F, P = 3, 4, 5
WEIGHT_P = torch.tensor([0.5, 0.3, -0.4, -0.2, 0.0], dtype=torch.float64)


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


W_EF, ONE_PF, OTHER_PF = draw(E, F), draw(P, F, seed=1), draw(P, F, seed=2)


def embedded(phi_F, w_EF, distance):
    """e of one row: normalised (arccos), or with the normalisation linearised at the weights as they are."""
    z_E = w_EF @ phi_F
    if distance == "arccos":
        return z_E / z_E.norm()
    z0_E = W_EF @ phi_F
    e0_E = z0_E / z0_E.norm()
    return e0_E + (torch.eye(E, dtype=torch.float64) - torch.outer(e0_E, e0_E)) / z0_E.norm() @ (z_E - z0_E)


def hessian_of(distance, hessian, w_EF=W_EF):
    """(E·F, E·F) by autograd, from the definition: Eq. 22 with the targets y, and Eq. 110 and 111 for fixed."""

    def term(w_EF):
        total = 0.0
        for y, one_F, other_F in zip(WEIGHT_P, ONE_PF, OTHER_PF, strict=True):
            if hessian == "positive" and y < 0:
                continue
            ends = [(embedded(one_F, w_EF, distance), embedded(other_F, w_EF, distance))]
            if hessian == "fixed":
                ends = [(ends[0][0], ends[0][1].detach()), (ends[0][0].detach(), ends[0][1])]
            total = total + sum(y / 2 * (a - b).square().sum() for a, b in ends)
        return total

    return autograd_hessian(term, w_EF).reshape(E * F, E * F)


SIDES = [side(phi_PF @ W_EF.T, phi_PF) for phi_PF in (ONE_PF, OTHER_PF)]


@pytest.mark.parametrize("distance", ["arccos", "euclidean"])
@pytest.mark.parametrize("hessian", ["fixed", "positive", "full"])
def test_the_six_hessians_are_those_of_autograd(distance, hessian):
    found_EF = diagonal(*SIDES, WEIGHT_P, distance=distance, hessian=hessian)
    torch.testing.assert_close(found_EF.flatten(), hessian_of(distance, hessian).diag(), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("distance", ["arccos", "euclidean"])
def test_factors_are_those_of_each_term(distance):
    left_EE, right_FF, total = factors(*SIDES, WEIGHT_P, distance=distance)
    wanted_left, wanted_right = torch.zeros(E, E, dtype=torch.float64), torch.zeros(F, F, dtype=torch.float64)
    for y, *ends in zip(WEIGHT_P, ONE_PF, OTHER_PF, strict=True):
        for near_F, far_F in (ends, ends[::-1]):
            far_E, z0_E = embedded(far_F, W_EF, distance), W_EF @ near_F
            e0_E, norm = z0_E / z0_E.norm(), z0_E.norm()

            def term(z_E, far_E=far_E, z0_E=z0_E, e0_E=e0_E, norm=norm):
                e_E = z_E / z_E.norm()
                if distance == "euclidean":
                    e_E = e0_E + (torch.eye(E, dtype=torch.float64) - torch.outer(e0_E, e0_E)) / norm @ (z_E - z0_E)
                return (e_E - far_E).square().sum() / 2

            wanted_left += y * autograd_hessian(term, z0_E)
            wanted_right += y * torch.outer(near_F, near_F)
    torch.testing.assert_close(left_EE, wanted_left)
    torch.testing.assert_close(right_FF, wanted_right)
    torch.testing.assert_close(total, 2 * WEIGHT_P.sum())


@pytest.mark.parametrize("distance", ["arccos", "euclidean"])
def test_one_kronecker_product_is_the_whole_hessian_where_inputs_are_alike(distance):
    """Inputs of the same direction have the same M up to their length, which the factors must not lose."""
    one_PF, other_PF = (ONE_PF[:1].expand(3, -1) for _ in range(2))
    sides = [side(phi_PF @ W_EF.T, phi_PF) for phi_PF in (one_PF, other_PF)]
    weight_P = torch.tensor([0.5, -0.1, 0.2], dtype=torch.float64)
    left_EE, right_FF, total = factors(*sides, weight_P, distance=distance)
    whole = torch.kron(left_EE, right_FF) / total
    wanted_EF = diagonal(*sides, weight_P, distance=distance, hessian="fixed")
    torch.testing.assert_close(whole.diag(), wanted_EF.flatten())


def ready(**settings):
    settings = {"dimension": E, "projection_layers": 0, "negatives": 2, "samples": 5, "margin": 1.5, **settings}
    head = make_head({"kind": "lam", "observations": 7.0, **settings}, seed=1)
    head.prepare(Summary(width=F - 1, rows=99, num_classes=3))
    return head


def of_rows(x_BD, label_B=None):
    return RepresentationBatch(representation_BVD=x_BD[:, None], row_B=torch.arange(len(x_BD)), label_B=label_B)


@pytest.mark.parametrize("structure", ["diagonal", "kronecker"])
def test_sampled_weights_have_the_inverse_of_the_precision(structure):
    """The map from noise to weights is linear, so its matrix says the covariance exactly."""
    head = ready(structure=structure, prior_precision=0.3, posterior="post_hoc").double()
    if structure == "diagonal":
        head.curvature_EF.copy_(draw(E, F))  # values below 0 count as 0
        precision = head.curvature_EF.clamp_min(0).flatten().diag()
    else:
        roots = draw(E, 2), draw(F, F, seed=1)
        for buffer, root in zip((head.left_EE, head.right_FF), roots, strict=True):
            buffer.copy_(root @ root.T)
        head.total.fill_(1.7)
        precision = torch.kron(head.left_EE, head.right_FF) / 1.7
    basis = torch.eye(E * F, dtype=torch.float64).view(-1, E, F)
    map_of = head._deviations(basis).flatten(1).T
    torch.testing.assert_close(map_of @ map_of.T, torch.linalg.inv(precision + 0.3 * torch.eye(E * F).double()))


def mean_hessian(head, x_BD, groups, weight_EF):
    """The diagonal, of arccos and fixed, with w = 0.5, over groups of places."""
    x_BD, weight_EF, total = x_BD.double(), weight_EF.double(), torch.zeros(E, F, dtype=torch.float64)
    phi_BF = torch.cat([x_BD, torch.ones_like(x_BD[:, :1])], 1)
    for anchor, positive, *negatives in groups:
        for other, y in [(positive, 0.5), *((negative, -0.5 / len(negatives)) for negative in negatives)]:
            ends = [normalize(phi_BF[place] @ weight_EF.T, dim=-1) for place in (anchor, other)]
            if y < 0 and (ends[0] - ends[1]).square().sum() >= head.config.margin:
                continue
            for near, far in ((anchor, ends[1]), (other, ends[0])):
                term = autograd_hessian(
                    lambda w, near=near, far=far: (normalize(w @ phi_BF[near], dim=-1) - far).square().sum() / 2,
                    weight_EF,
                )
                total += y * term.reshape(E * F, -1).diag().view(E, F)
    return total / len(groups)


def test_online_carries_the_hessian_of_the_step():
    """With a prior so strong that nothing is drawn: the gradient is α·N times the mean over groups."""
    head, x_BD = ready(prior_precision=1e24, memory=0.2), draw(12, F - 1).float()
    output = head.loss(of_rows(x_BD))
    weight_EF = head._weight().detach()
    (found_EF,) = torch.autograd.grad(output.total, [head.curvature_EF], retain_graph=True)
    groups = [range(start, start + 4) for start in (0, 4, 8)]
    wanted_EF = 0.2 * 7 * mean_hessian(head, x_BD, groups, weight_EF)
    torch.testing.assert_close(found_EF.double(), wanted_EF, rtol=1e-4, atol=1e-5)
    assert head.running == {"curvature_EF": 0.8}
    e_BE = normalize(head._inputs(x_BD) @ weight_EF.T, dim=-1)
    torch.testing.assert_close(output.total, contrastive(e_BE, split(torch.arange(12), 2), 1.5))


def test_online_steps_are_at_sampled_weights():
    head, x_BD, losses = ready(prior_precision=0.5), draw(12, F - 1).float(), set()
    for seed in range(3):
        torch.manual_seed(seed)
        losses.add(head.loss(of_rows(x_BD)).total.item())
    assert len(losses) == 3


def test_the_contrastive_loss_by_loops():
    e_BE, wanted = normalize(draw(8, E), dim=-1), 0.0
    for start in (0, 4):
        wanted += float((e_BE[start] - e_BE[start + 1]).square().sum()) / 4
        for negative in (start + 2, start + 3):
            wanted += max(0.0, 1.5 - float((e_BE[start] - e_BE[negative]).square().sum())) / 8
    assert contrastive(e_BE, split(torch.arange(8), 2), 1.5).item() == pytest.approx(wanted)


@pytest.mark.parametrize("posterior", ["online", "post_hoc"])
def test_the_loss_of_rows_is_that_of_the_triplets_among_them(posterior):
    """Also where the rows are made by a network that learns: gradients reach it."""
    head, label_B = ready(posterior=posterior, prior_precision=1e24), torch.tensor([0, 1, 0, 1, 2, 2, 0, 1, 2, 0])
    x_BD = draw(10, F - 1).float().requires_grad_()
    places = within(head(x_BD).embedding_BE, label_B, 2, "representation")
    wanted = head.loss(of_rows(x_BD[torch.cat(places, dim=1).flatten()])).total
    found = head.loss_within(x_BD, label_B)
    torch.testing.assert_close(found, wanted)
    learnt = [x_BD, *head.parameters()]
    for one, other in zip(torch.autograd.grad(found, learnt), torch.autograd.grad(wanted, learnt), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_post_hoc_is_the_direct_sum_over_batches():
    head, x_BD = ready(posterior="post_hoc"), draw(14, F - 1).float()
    label_B = torch.tensor([0, 1, 0, 1, 2, 2, 0, 1, 1, 0, -1, 2, 2, 0])
    head.finalise(of_rows(x_BD[rows], label_B[rows]) for rows in (slice(0, 8), slice(8, 14)))
    weight_EF, total, count = head._weight().detach(), 0.0, 0
    for first, last in ((0, 8), (8, 14)):
        rows, labels = last - first, label_B[first:last].tolist()
        e_BE = normalize(head._inputs(x_BD[first:last]) @ weight_EF.T, dim=-1).detach().double()
        groups = []
        for row, label in enumerate(labels):
            positives = [(row + ahead) % rows for ahead in range(1, rows) if labels[(row + ahead) % rows] == label >= 0]
            others = [other for other in range(rows) if labels[other] >= 0 and labels[other] != label]
            others.sort(key=lambda other, row=row: -float(e_BE[row] @ e_BE[other]))
            if positives and len(others) >= 2:
                groups.append((row, positives[0], *others[:2]))
        total = total + len(groups) * mean_hessian(head, x_BD[first:last], groups, weight_EF)
        count += len(groups)
    torch.testing.assert_close(head.curvature_EF.double(), 7 * total / count, rtol=1e-4, atol=1e-5)


def test_kappa_is_that_of_the_sampled_embeddings():
    """Eq. 42 and 43."""
    head, x_BD = ready(posterior="post_hoc", samples=50), draw(4, F - 1).float()
    weights = head._weight().detach().double() + head.noise_SEF.double() * head.prior**-0.5
    for row, x_D in enumerate(x_BD):
        samples = torch.stack(
            [normalize(weight_EF[:, :-1] @ x_D.double() + weight_EF[:, -1], dim=-1) for weight_EF in weights]
        )
        length = samples.mean(0).norm()
        kappa = length * (E - length**2) / (1 - length**2)
        assert head(x_BD).uncertainty_B[row].item() == pytest.approx(1 / kappa.item(), rel=1e-4)


def test_more_observations_make_surer():
    few, many = (
        ready(posterior="post_hoc", observations=n, hessian="positive", distance="euclidean") for n in (1.0, 1e4)
    )
    x_BD, label_B = draw(40, F - 1).float(), torch.arange(40) % 3
    for head in (few, many):
        head.finalise([of_rows(x_BD, label_B)])
    assert many(x_BD).uncertainty_B.mean() < 0.5 * few(x_BD).uncertainty_B.mean()


def test_random_negatives_are_of_other_classes():
    label_B = torch.arange(30) % 4
    anchor, positive, negative = within(normalize(draw(30, E), dim=-1), label_B, 3, "random")
    assert (label_B[anchor] == label_B[positive]).all()
    assert (anchor != positive).all()
    assert (label_B[anchor] != label_B[negative]).all()
    assert len(anchor) == 30


def test_a_kronecker_product_is_for_fixed_alone():
    with pytest.raises(Exception, match="hessian=fixed"):
        make_head({"kind": "lam", "structure": "kronecker", "hessian": "full"})


@pytest.mark.parametrize("settings", [{"posterior": "online"}, {"posterior": "post_hoc"}, {"structure": "kronecker"}])
def test_what_lies_away_from_the_training_rows_is_found(settings):
    """Six clusters in half of the dimensions; strangers lie in the other half, as far out."""
    draws = torch.Generator().manual_seed(0)
    centre_CD = 3 * torch.randn(6, 16, generator=draws) * (torch.arange(16) < 8)

    def rows_of(label_B):
        return centre_CD[label_B] + 0.5 * torch.randn(len(label_B), 16, generator=draws)

    head = make_head(
        {"kind": "lam", "dimension": 8, "projection_hidden": 32, "negatives": 2, "memory": 0.05, **settings}
    )
    head.prepare(Summary(width=16, rows=1000, num_classes=6, scale=1.5))
    updates = Updates([Member(head, TrainingConfig(device="cpu", precision="fp32"), torch.device("cpu"))])
    updates.set_rates([3e-3])
    for _ in range(60):
        anchor_G1 = torch.randint(6, (32, 1), generator=draws)
        other_GN = (anchor_G1 + torch.randint(1, 6, (32, 2), generator=draws)) % 6
        label_B = torch.cat([anchor_G1, anchor_G1, other_GN], dim=1).flatten()
        loss = head.loss(of_rows(rows_of(label_B), label_B)).total
        updates.run(list(torch.autograd.grad(loss, updates.parameters)))
    label_B = torch.randint(6, (300,), generator=draws)
    head.eval().finalise([of_rows(rows_of(label_B), label_B)])
    strangers = 3 * torch.randn(300, 16, generator=draws) * (torch.arange(16) >= 8)
    own_B, strange_B = head(rows_of(label_B)).uncertainty_B, head(strangers).uncertainty_B
    assert (strange_B[:, None] > own_B).double().mean() > 0.75  # the share of pairs in order, .5 by chance
