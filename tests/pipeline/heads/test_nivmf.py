"""EL-nivMF and its other distances against integrals over the circle, and ProxyAnchor against loops."""

import math

import numpy as np
import pytest
import torch
from scipy.special import iv

from pipeline.distributions import NonIsotropicVonMisesFisher
from pipeline.errors import UserError
from pipeline.heads import make_head
from pipeline.heads.base import RepresentationBatch, Summary
from pipeline.heads.nivmf import proxy_anchor

TURN = np.arange(4000) * (2 * math.pi / 4000)
CIRCLE, STEP = np.stack([np.cos(TURN), np.sin(TURN)], axis=1), 2 * math.pi / 4000


def ready(classes=3, width=2, **settings):
    head = make_head({"kind": "nivmf", "hidden": 8, "layers": 1, "samples": 5, "class_concentration": 3.0, **settings})
    head.prepare(Summary(width=width, rows=9, num_classes=classes))
    with torch.no_grad():  # classes of different shapes
        for name, parameter in head.named_parameters():
            if name == "log_concentration_CK":
                parameter += torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)) / 3
    return head


def batch(labels, width=2):
    x_BVD = torch.randn(len(labels), 1, width, generator=torch.Generator().manual_seed(0))
    return RepresentationBatch(representation_BVD=x_BVD, row_B=torch.arange(len(labels)), label_B=torch.tensor(labels))


def density(loc, kappa):
    return np.exp(kappa * (CIRCLE @ loc)) / (2 * math.pi * iv(0, kappa))


def wanted_distance(kind, row, one):
    """Of vMF ``row`` and vMF ``one`` on the circle, each (direction, κ)."""
    (loc, kappa), (class_loc, class_kappa) = row, one
    if kind == "cosine":
        return -float(loc @ class_loc)
    if kind == "l2":
        return float(((kappa * loc - class_kappa * class_loc) ** 2).sum())
    p, q = density(*row), density(*one)
    if kind == "kl_vmf":
        return float((p * np.log(p / q)).sum() * STEP)
    return -math.log(float((p * q if kind == "el_vmf" else np.sqrt(p * q)).sum() * STEP))


@pytest.mark.parametrize("kind", ["el_vmf", "b_vmf", "kl_vmf", "l2", "cosine"])
def test_isotropic_distances_by_integrals(kind):
    head = ready(distance=kind, mean="projection", dimension=2, temperature=2.0)
    labels, x = [0, 2, 1, -1], batch([0, 2, 1, -1])
    if kind == "cosine":
        locs = torch.nn.functional.normalize(head.projection(x.representation_BVD[:, 0]), dim=-1)
        kappas = class_kappas = [1.0] * 4
    else:
        posterior = head.posterior(x.representation_BVD[:, 0])
        locs, kappas = posterior.loc, posterior.concentration.tolist()
        class_kappas = head.log_concentration_CK[:, 0].exp().tolist()
    classes = torch.nn.functional.normalize(head.class_CE, dim=-1)
    rows, ones = (
        list(zip(found.double().detach().numpy(), values, strict=False))
        for found, values in ((locs, kappas), (classes, class_kappas))
    )
    losses = []
    for row, label in zip(rows, labels, strict=True):
        likes = [math.exp(-wanted_distance(kind, row, one) / 2) for one in ones]
        losses.append(0 if label < 0 else -math.log(likes[label] / sum(likes)))
    assert head.loss(x).total.item() == pytest.approx(np.mean(losses), rel=1e-4)


@pytest.mark.parametrize("kind", ["el_nivmf", "nivmf"])
@pytest.mark.parametrize("which", ["exact", "paper"])
def test_non_isotropic_distances_by_loops(kind, which):
    head, x = ready(width=6, distance=kind, density=which, mean="projection", dimension=4), batch([0, 2, 1, 1], 6)
    torch.manual_seed(2)
    found = head.loss(x).total.item()
    torch.manual_seed(2)
    x_BD = x.representation_BVD[:, 0]
    if kind == "nivmf":
        z_SBE = torch.nn.functional.normalize(head.projection(x_BD), dim=-1)[None]
    else:
        z_SBE = head.posterior(x_BD).rsample((5,))
    losses = []
    for row, label in enumerate([0, 2, 1, 1]):
        likes = []
        for class_E, log_kappa_E in zip(head.class_CE.double(), head.log_concentration_CK.double(), strict=True):
            one = NonIsotropicVonMisesFisher(
                class_E / class_E.norm(), log_kappa_E.exp(), density=which, validate_args=False
            )
            likes.append(one.log_prob(z_SBE[:, row].double()).exp().mean().item())
        losses.append(-math.log(likes[label] / sum(likes)))
    assert found == pytest.approx(np.mean(losses), rel=1e-4)


def test_a_few_classes_at_a_time_give_the_loss_and_gradient_of_all(monkeypatch):
    head, x = ready(classes=7, width=6, mean="frozen"), batch([0, 6, 3, 2], 6)
    results = []
    for at_once in (1 << 23, 40):  # all classes, or two
        monkeypatch.setattr("pipeline.heads.nivmf.AT_ONCE", at_once)
        torch.manual_seed(3)
        total = head.loss(x).total
        results.append([total, *torch.autograd.grad(total, list(head.parameters()))])
    for whole, parts in zip(*results, strict=True):
        torch.testing.assert_close(whole, parts, rtol=1e-4, atol=1e-6)


def test_proxy_anchor_by_loops():
    cosine_BC = torch.rand(5, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(4)) * 2 - 1
    labels = [0, 2, 2, -1, 0]
    pull, push = [], []
    for place in range(3):
        pairs = list(zip(cosine_BC[:, place].tolist(), labels, strict=True))
        own = sum(math.exp(-8 * (s - 0.2)) for s, label in pairs if label == place)
        other = sum(math.exp(8 * (s + 0.2)) for s, label in pairs if label not in (place, -1))
        if place in labels:
            pull.append(math.log1p(own))
        push.append(math.log1p(other))
    found = proxy_anchor(cosine_BC, torch.tensor(labels), scale=8.0, margin=0.2)
    assert found.item() == pytest.approx(np.mean(pull) + np.mean(push))


def test_the_anchor_is_added_with_its_weight():
    x = batch([0, 2, 1, 1])
    plain, both = (ready(distance="el_vmf", anchor_weight=weight).loss(x) for weight in (0.0, 0.5))
    assert both.total.item() == pytest.approx(plain.total.item() + 0.5 * both.parts["anchor"].item())
    assert (ready(distance="el_vmf").needs.together, ready(distance="el_vmf", anchor_weight=0.5).needs.together) == (
        1,
        None,
    )


def test_points_have_the_inverse_length_for_a_score_and_no_samples():
    head, x_BD = ready(distance="cosine", mean="projection", dimension=4), batch([0, 1]).representation_BVD[:, 0]
    length_B = torch.linalg.vector_norm(head.projection(x_BD), dim=-1)
    assert torch.allclose(head(x_BD).uncertainty["inverse_norm"], 1 / length_B)
    with pytest.raises(NotImplementedError):
        head.sample(x_BD, 3, torch.Generator())


def test_what_is_refused():
    with pytest.raises(UserError, match=r"set head\.mean=projection"):
        ready(distance="cosine", mean="frozen")
    with pytest.raises(UserError, match="no classes"):
        ready(classes=0)
