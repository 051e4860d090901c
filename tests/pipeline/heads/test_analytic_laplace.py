"""Laplace of the last layer: its matrices against autograd's Hessian, its prior against the evidence."""

from __future__ import annotations

import math

import pytest
import torch
from torch.autograd.functional import hessian
from torch.nn.functional import cross_entropy

from pipeline.errors import UserError
from pipeline.heads import make_head
from pipeline.heads.analytic_laplace import evidence_precision, with_one
from pipeline.heads.base import LinearClassifier, RepresentationBatch, Summary

WIDTH, CLASSES, ROWS = 3, 4, 30


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


CLASSIFIER = LinearClassifier(weight_CD=draw(CLASSES, WIDTH, seed=1), bias_C=draw(CLASSES, seed=2))
SEEN_BD, X_BD = draw(ROWS, WIDTH), 2 * draw(5, WIDTH, seed=3)


def ready(structure, prior=0.7, passes=True, classifier=CLASSIFIER, classes=CLASSES):
    head = make_head({"kind": "analytic_laplace", "structure": structure, "prior_precision": prior})
    head.prepare(Summary(width=WIDTH, rows=ROWS, num_classes=classes, classifier=classifier))
    if passes:
        cuts = (SEEN_BD[:20], SEEN_BD[20:])
        head.finalise(
            RepresentationBatch(representation_BVD=x_BD[:, None], row_B=torch.arange(len(x_BD))) for x_BD in cuts
        )
    return head


def matrix(structure):
    """(C·F, C·F): of the whole Hessian of the mean cross-entropy's sum, what the structure keeps."""
    weight_CF = torch.cat([CLASSIFIER.weight_CD, CLASSIFIER.bias_C[:, None]], 1)
    phi_BF = with_one(SEEN_BD).double()
    if structure == "diagonal":
        label_B = torch.zeros(ROWS).long()  # a softmax's Hessian has no label in it
        full = hessian(lambda w: cross_entropy(phi_BF @ w.T, label_B, reduction="sum"), weight_CF)
        return full.reshape(CLASSES * (WIDTH + 1), -1).diag().diag()
    p_BC = torch.softmax(phi_BF @ weight_CF.T, -1)
    right_CC = sum(p.diag() - torch.outer(p, p) for p in p_BC) / ROWS
    if structure == "kronecker_diagonal":
        right_CC = right_CC.diag().diag()
    return torch.kron(right_CC, sum(torch.outer(phi, phi) for phi in phi_BF))


@pytest.mark.parametrize("structure", ["diagonal", "kronecker", "kronecker_diagonal"])
def test_scores_by_the_whole_covariance(structure):
    output = ready(structure)(X_BD.float())
    covariance = torch.linalg.inv(matrix(structure) + 0.7 * torch.eye(CLASSES * (WIDTH + 1), dtype=torch.float64))
    for row, phi_F in enumerate(with_one(X_BD).double()):
        jacobian = torch.kron(torch.eye(CLASSES, dtype=torch.float64), phi_F[None])
        variance_C = (jacobian @ covariance @ jacobian.T).diag()
        mean_C = CLASSIFIER.weight_CD @ phi_F[:-1] + CLASSIFIER.bias_C
        p_C = torch.softmax(mean_C / (1 + math.pi / 8 * variance_C).sqrt(), -1)
        assert output.uncertainty["variance"][row].item() == pytest.approx(variance_C.mean().item(), rel=1e-4)
        assert output.uncertainty["entropy"][row].item() == pytest.approx(-(p_C * p_C.log()).sum().item(), rel=1e-4)


def test_the_kronecker_form_is_exact_for_one_row():
    """Then the mean of a product is the product of means."""
    weight_CF = torch.cat([CLASSIFIER.weight_CD, CLASSIFIER.bias_C[:, None]], 1)
    phi_BF = with_one(SEEN_BD[:1]).double()
    full = hessian(lambda w: cross_entropy(phi_BF @ w.T, torch.tensor([2])), weight_CF)
    p_C = torch.softmax(phi_BF[0] @ weight_CF.T, -1)
    factors = torch.kron(p_C.diag() - torch.outer(p_C, p_C), torch.outer(phi_BF[0], phi_BF[0]))
    torch.testing.assert_close(full.reshape(factors.shape), factors)


@pytest.mark.parametrize("structure", ["diagonal", "kronecker", "kronecker_diagonal"])
def test_the_prior_is_that_of_the_greatest_evidence(structure):
    found, eigenvalues = ready(structure, prior=None).prior.item(), torch.linalg.eigvalsh(matrix(structure))
    squares = CLASSIFIER.weight_CD.square().sum() + CLASSIFIER.bias_C.square().sum()

    def evidence(delta):
        terms = len(eigenvalues) * math.log(delta) - delta * squares - (eigenvalues + delta).log().sum()
        return float(terms) / 2

    assert max((evidence(found * 1.01), evidence(found / 1.01))) < evidence(found)
    assert evidence_precision(eigenvalues, float(squares)) == pytest.approx(found, rel=1e-4)


def test_before_the_pass_the_posterior_is_the_prior():
    for structure in ("diagonal", "kronecker", "kronecker_diagonal"):
        variance_B = ready(structure, prior=0.5, passes=False)(X_BD.float()).uncertainty["variance"]
        torch.testing.assert_close(variance_B.double(), (X_BD.square().sum(1) + 1) / 0.5, rtol=1e-5, atol=0)


def test_what_cannot_be_is_refused_with_advice():
    with pytest.raises(UserError, match="stage=probe"):
        ready("diagonal", passes=False, classifier=None)
    many = LinearClassifier(weight_CD=torch.zeros(5000, WIDTH), bias_C=torch.zeros(5000))
    with pytest.raises(UserError, match="kronecker_diagonal"):
        ready("kronecker", passes=False, classifier=many, classes=5000)
