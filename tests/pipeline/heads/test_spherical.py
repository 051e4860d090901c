"""What the heads with a direction and a concentration share."""

import pytest
import torch

from pipeline.heads import make_head
from pipeline.heads._spherical import LARGEST, LEAST
from pipeline.heads.base import Summary

KINDS = [{"kind": "mc_info_nce"}, {"kind": "elk"}, {"kind": "nivmf"}, {"kind": "hib", "posterior": "vmf"}]
posteriors = pytest.mark.parametrize("settings", KINDS, ids=lambda settings: settings["kind"])


def ready(settings, **more):
    head = make_head({"mean": "frozen", **settings, **more})
    head.prepare(Summary(width=8, rows=9, num_classes=3))
    return head


def posterior(head):
    return head.posterior.posterior if head.config.__class__.__module__.endswith("hib") else head.posterior


X_BD = torch.randn(5, 8, generator=torch.Generator().manual_seed(0))


@posteriors
def test_frozen_keeps_the_representation_and_projection_does_not(settings):
    frozen, learnt = ready(settings), ready(settings, mean="projection", dimension=3)
    assert frozen.keeps_representation
    assert frozen(X_BD).embedding_BE is X_BD
    assert torch.allclose(posterior(frozen)(X_BD).loc, torch.nn.functional.normalize(X_BD, dim=-1))
    assert not learnt.keeps_representation
    assert learnt(X_BD).embedding_BE.shape == (5, 3)
    assert torch.allclose(torch.linalg.vector_norm(learnt(X_BD).embedding_BE, dim=-1), torch.ones(5))


@posteriors
def test_the_concentration_is_one_of_the_direction_unless_asked_otherwise(settings):
    """Else the wish for a larger κ, which all rows share, would rank them by their length."""
    for reads, same in (("direction", True), ("representation", False)):
        head = ready(settings, reads=reads)
        assert torch.allclose(posterior(head)(3 * X_BD).concentration, posterior(head)(X_BD).concentration) == same


@posteriors
@pytest.mark.parametrize("mean", ["frozen", "projection"])
def test_samples_are_of_the_posterior_and_of_the_generator(settings, mean):
    head = ready(settings, mean=mean, dimension=3)
    first, again = (head.sample(X_BD, 4000, torch.Generator().manual_seed(1)) for _ in range(2))
    assert torch.equal(first, again)
    assert first.shape == (4000, 5, 8 if mean == "frozen" else 3)
    assert torch.allclose(first.mean(0), posterior(head)(X_BD).mean, atol=0.06)


@posteriors
def test_the_score_is_the_inverse_concentration_and_finite_at_the_ends(settings):
    head = ready(settings, initial_concentration=50.0)
    output = head(X_BD)
    assert torch.allclose(output.uncertainty_B, 1 / posterior(head)(X_BD).concentration)
    assert output.uncertainty_B.log().mean().exp().item() == pytest.approx(1 / 50, rel=0.5)
    with torch.no_grad():
        for bias, end in ((1e30, LARGEST), (-1e30, LEAST)):
            posterior(head).concentration.network[-1].bias.fill_(bias)
            assert torch.allclose(head(X_BD).uncertainty_B, torch.full((5,), 1 / end))
