"""Class probabilities some classes at a time: values and gradients of the plain formulas, in bounded memory."""

from __future__ import annotations

import math

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from pipeline.errors import UserError
from pipeline.heads import _classes, make_head
from pipeline.heads._classes import LogPartition, log_probability, pooled_entropies
from pipeline.heads.base import RepresentationBatch, Summary

LEARNT = ["deep_ensemble", "mc_dropout", "het_xl", "sngp"]


def draw(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


@pytest.fixture(params=[1 << 24, 7, 1])
def at_once(request, monkeypatch):
    monkeypatch.setattr(_classes, "AT_ONCE", request.param)
    return request.param


def test_log_probability_by_loops_and_its_gradient(at_once):
    x_ND, weight_CD, bias_C = draw(4, 3), draw(5, 3, seed=1), draw(5, seed=2)
    label_N = torch.tensor([0, 4, -1, 2])
    found_N = log_probability(x_ND.float(), weight_CD.float(), bias_C.float(), label_N)
    for row, label in enumerate(label_N.tolist()):
        logits = [float(bias_C[c]) + sum(float(weight_CD[c, d] * x_ND[row, d]) for d in range(3)) for c in range(5)]
        wanted = logits[label] - math.log(sum(math.exp(value) for value in logits)) if label >= 0 else 0.0
        assert found_N[row].item() == pytest.approx(wanted, abs=1e-6)
    inputs = [value.requires_grad_() for value in (x_ND, weight_CD, bias_C)]
    for one in range(3):
        term = LogPartition.apply(*inputs)[one]
        own = torch.autograd.grad(term, inputs)
        plain = torch.autograd.grad(torch.logsumexp(x_ND @ weight_CD.T + bias_C, -1)[one], inputs)
        for value, wanted in zip(own, plain, strict=True):
            torch.testing.assert_close(value.double(), wanted, rtol=1e-6, atol=1e-7)


def test_entropies_of_a_mean_by_loops(at_once):
    logits_MBC = 3 * draw(3, 4, 6)
    entropy_B, divergence_B = pooled_entropies(lambda some: logits_MBC[..., some], classes=6, members=3, rows=4)
    for row in range(4):
        members = []
        for member in range(3):
            weights = [math.exp(value) for value in logits_MBC[member, row].tolist()]
            members.append([weight / sum(weights) for weight in weights])
        mean = [sum(p[c] for p in members) / 3 for c in range(6)]
        entropies = [-sum(p * math.log(p) for p in one) for one in (mean, *members)]
        assert entropy_B[row].item() == pytest.approx(entropies[0], abs=1e-6)
        assert divergence_B[row].item() == pytest.approx(entropies[0] - sum(entropies[1:]) / 3, abs=1e-6)


class Largest(TorchDispatchMode):
    """Elements of the largest tensor that is made inside."""

    elements = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        out = function(*args, **(kwargs or {}))
        for value in out if isinstance(out, list | tuple) else [out]:
            if isinstance(value, torch.Tensor):
                self.elements = max(self.elements, value.untyped_storage().nbytes() // value.element_size())
        return out


@pytest.mark.parametrize("name", LEARNT)
def test_nothing_as_large_as_all_logits_is_made(name, monkeypatch):
    """Of 64 rows and 2,000 classes, one set of logits would have 128,000 elements."""
    monkeypatch.setattr(_classes, "AT_ONCE", 1 << 14)
    few = {"deep_ensemble": {"members": 3}, "sngp": {"features": 4}}
    head = make_head({"kind": name, **few.get(name, {"samples": 3})})
    head.prepare(Summary(width=4, rows=100, num_classes=2000))
    x_BD = draw(64, 4, dtype=torch.float32)
    batch = RepresentationBatch(representation_BVD=x_BD[:, None], row_B=torch.arange(64), label_B=torch.arange(64))
    with Largest() as largest:
        head.loss(batch).total.backward()
        head(x_BD)
    assert largest.elements <= 1 << 14


@pytest.mark.parametrize("name", LEARNT)
def test_without_classes_there_is_nothing_to_learn(name):
    with pytest.raises(UserError, match="no classes"):
        make_head({"kind": name}).prepare(Summary(width=4, rows=9, num_classes=0))


@pytest.mark.parametrize("name", LEARNT)
def test_rows_without_a_label_weigh_nothing(name):
    head = make_head({"kind": name})
    head.prepare(Summary(width=4, rows=9, num_classes=3))
    x_BVD = draw(4, 1, 4, dtype=torch.float32)

    def gradient(label_B):
        head.zero_grad()
        torch.manual_seed(0)
        batch = RepresentationBatch(representation_BVD=x_BVD, row_B=torch.arange(4), label_B=label_B)
        head.loss(batch).total.backward()
        return [parameter.grad.clone() for parameter in head.parameters()]

    one, other, both = (gradient(torch.tensor(label_B)) for label_B in ([2, 1, -1, -1], [-1, -1, 0, 1], [2, 1, 0, 1]))
    for parts in zip(one, other, both, strict=True):
        torch.testing.assert_close(parts[0] + parts[1], parts[2], rtol=1e-4, atol=1e-6)
