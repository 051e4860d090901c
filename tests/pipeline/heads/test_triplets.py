"""Triplets: moments against Monte Carlo and loops, losses against float64, hard negatives served as asked for."""

from __future__ import annotations

import math

import pytest
import torch
from scipy.stats import norm

from pipeline.distributions import VonMisesFisher
from pipeline.heads import make_head
from pipeline.heads._triplets import gap, gaussian_moments, vmf_moments
from pipeline.heads.base import RepresentationBatch, Summary
from pipeline.heads.bayesian_triplet import kl_to_ball, log_normal_cdf

DRAWS = 1_000_000


def draw(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def ready(kind, width=6, **settings):
    head = make_head({"kind": kind, "negatives": 2, **settings}, seed=1)
    head.prepare(Summary(width=width, rows=99, num_classes=5))
    return head.eval()


def of_rows(x_BD):
    return RepresentationBatch(representation_BVD=x_BD[:, None], row_B=torch.arange(len(x_BD)))


def within_one_percent(tau, mean, variance):
    """The spread of τ is the unit of its mean, which may be near 0."""
    assert tau.mean().item() == pytest.approx(mean, abs=0.01 * max(abs(mean), variance**0.5))
    assert tau.var().item() == pytest.approx(variance, rel=0.01)


@pytest.mark.parametrize("d", [2, 8, 64])
def test_gaussian_moments_match_a_million_draws(d):
    """Eq. 12 as it is printed would be off by 1 % to 135 %."""
    loc_BE, variance_B = draw(3, d, seed=d), torch.tensor([0.5, 1.3, 0.2], dtype=torch.float64)
    generator, tau = torch.Generator().manual_seed(d), torch.zeros(DRAWS)
    for loc_3 in loc_BE.T.tolist():
        a, p, n = (
            loc + variance**0.5 * torch.randn(DRAWS, generator=generator)
            for loc, variance in zip(loc_3, variance_B.tolist(), strict=True)
        )
        tau += (a - p).square() - (a - n).square()
    mean, variance = gaussian_moments(loc_BE, variance_B, 1)
    within_one_percent(tau.double(), mean.item(), variance.item())


@pytest.mark.parametrize(
    ("d", "draws", "kappas"),
    [(2, 100_000, (0.5, 3.0, 40.0)), (8, 100_000, (20.0, 2.0, 9.0)), (64, 20_000, (30.0, 200.0, 80.0))],
)
def test_vmf_moments_match_draws(d, draws, kappas):
    """Within four standard errors; within 1 % of a million draws it was too, which takes a minute."""
    posterior = VonMisesFisher(
        torch.nn.functional.normalize(draw(3, d, seed=d), dim=-1), torch.tensor(kappas, dtype=torch.float64)
    )
    z_SBE = posterior.sample((draws,), torch.Generator().manual_seed(d))
    tau = 2 * (z_SBE[:, 0] * (z_SBE[:, 2] - z_SBE[:, 1])).sum(-1)
    mean, variance = (value.item() for value in vmf_moments(posterior, 1))
    assert tau.mean().item() == pytest.approx(mean, abs=4 * (variance / draws) ** 0.5)
    fourth = (tau - tau.mean()).pow(4).mean().item()
    assert tau.var().item() == pytest.approx(variance, abs=4 * ((fourth - variance**2) / draws) ** 0.5)


@pytest.mark.parametrize("posterior", ["gaussian", "vmf"])
@pytest.mark.parametrize("only_violating", [True, False])
def test_the_bayesian_loss_triplet_by_triplet(posterior, only_violating):
    head = ready("bayesian_triplet", posterior=posterior, beta=0.1, only_violating=only_violating, margin=0.05)
    x_BD = draw(12, 6, dtype=torch.float32)
    spread_B = head.spread(x_BD)[:, 0].detach().double()
    loc_BE = torch.nn.functional.normalize(x_BD.double(), dim=-1)
    losses, divergences = [], []
    for start in range(0, 12, 4):
        for negative in (start + 2, start + 3):
            rows = [start, start + 1, negative]
            if posterior == "gaussian":
                moments = gaussian_moments(loc_BE[rows], spread_B[rows], 1)
                own = [kl_to_ball(loc_BE[[row]], spread_B[[row]]).item() for row in rows]
            else:
                moments = vmf_moments(VonMisesFisher(loc_BE[rows], spread_B[rows]), 1)
                own = [divergence_to_uniform(spread_B[row].item()) for row in rows]
            mean, variance = (value.item() for value in moments)
            a, p, n = loc_BE[rows]
            kept = not only_violating or (a - p).square().sum() - (a - n).square().sum() > -0.05
            losses.append(-norm.logcdf((-0.05 - mean) / variance**0.5) if kept else 0.0)
            divergences.append(sum(own))
    wanted = sum(losses) / 6 + 0.1 * sum(divergences) / 6
    assert head.loss(of_rows(x_BD)).total.item() == pytest.approx(wanted, rel=1e-5)


def divergence_to_uniform(kappa):
    """KL(vMF ‖ uniform) on S⁵ by quadrature over the cosine."""
    t = torch.linspace(-1, 1, 200_001, dtype=torch.float64)
    base = (1 - t.square()).pow(1.5)
    tilted = base * torch.exp(kappa * (t - 1))
    log_share = kappa * (t - 1) - math.log(torch.trapezoid(tilted, t)) + math.log(torch.trapezoid(base, t))
    return (torch.trapezoid(tilted * log_share, t) / torch.trapezoid(tilted, t)).item()


def test_the_divergence_from_the_ball_by_torch():
    loc_BE, variance_B = draw(4, 5), draw(4).exp()
    normal = torch.distributions.MultivariateNormal
    eye = torch.eye(5, dtype=torch.float64)
    for row in range(4):
        one = normal(loc_BE[row], variance_B[row] * eye)
        wanted = torch.distributions.kl_divergence(one, normal(torch.zeros(5, dtype=torch.float64), eye / 5))
        torch.testing.assert_close(kl_to_ball(loc_BE[[row]], variance_B[[row]])[0], wanted)


@pytest.mark.parametrize("posterior", ["gaussian", "vmf"])
def test_expected_distance_and_score_match_samples(posterior):
    head, x_BD = ready("bayesian_triplet", posterior=posterior, mean="projection", dimension=4), draw(3, 6).float()
    z_SBE, w_SBE = (head.sample(x_BD, 40_000, torch.Generator().manual_seed(seed)) for seed in (0, 1))
    expected_QB = head.expected_distance(x_BD, x_BD).detach()
    for query in range(3):
        for row in range(3):
            found = (z_SBE[:, query] - w_SBE[:, row]).square().sum(-1).mean()
            assert found.item() == pytest.approx(expected_QB[query, row].item(), rel=0.03)
    score_B = head(x_BD).uncertainty_B.detach()
    torch.testing.assert_close((z_SBE - w_SBE).var(0).sum(-1), score_B, rtol=0.03, atol=0)


def test_triplet_and_triplet_regression_by_loops():
    x_BD = draw(12, 6, dtype=torch.float32)
    triplet = ready("triplet", margin=0.4, dimension=3)
    regression = ready("triplet_regression", margin=0.4, initial_variance=0.5)
    unit_BE = torch.nn.functional.normalize(triplet.projection(x_BD), dim=-1).detach().double()
    frozen_BE = torch.nn.functional.normalize(x_BD.double(), dim=-1)
    variance_B = regression.variance(x_BD)[:, 0].detach().double()
    wanted = [0.0, 0.0]
    for start in range(0, 12, 4):
        for negative in (start + 2, start + 3):
            for place, e_BE in enumerate((unit_BE, frozen_BE)):
                near = (e_BE[start] - e_BE[start + 1]).square().sum()
                hinge = max(0.0, float(near - (e_BE[start] - e_BE[negative]).square().sum()) + 0.4)
                variance = float(variance_B[start])
                wanted[place] += (hinge if place == 0 else hinge / (2 * variance) + math.log(variance) / 2) / 6
    for head, value in zip((triplet, regression), wanted, strict=True):
        assert head.loss(of_rows(x_BD)).total.item() == pytest.approx(value, rel=1e-5)


def test_the_regression_learns_the_expected_triplet_loss():
    """Where ℓ is what it is, ℓ/(2σ²) + ½ log σ² is least at σ² = E ℓ."""
    loss, variances = 0.3, torch.linspace(0.05, 1, 1000)
    assert variances[(loss / variances + variances.log()).argmin()].item() == pytest.approx(loss, abs=2e-3)


def test_the_logarithm_of_the_normal_distribution_in_both_tails():
    x = torch.linspace(-60, 12, 721, dtype=torch.float64, requires_grad=True)
    found = log_normal_cdf(x)
    torch.testing.assert_close(found, torch.from_numpy(norm.logcdf(x.detach().numpy())), rtol=1e-12, atol=0)
    (slope,) = torch.autograd.grad(found.sum(), x)
    wanted = norm.logpdf(x.detach().numpy()) - norm.logcdf(x.detach().numpy())
    torch.testing.assert_close(slope, torch.from_numpy(wanted).exp(), rtol=1e-9, atol=0)


def test_wrong_order_widens_and_right_order_narrows():
    """Fig. 2: the gradient of the variances by the order of the means."""
    for negative, sign in ((3.0, 1), (0.2, -1)):
        loc_BE = torch.tensor([[0.0], [1.0], [negative]], dtype=torch.float64)
        variance_B = torch.full((3,), 0.3, dtype=torch.float64, requires_grad=True)
        mean, variance = gaussian_moments(loc_BE, variance_B, 1)
        loss = -torch.special.log_ndtr(-mean / variance.sqrt()).sum()
        assert (
            torch.autograd.grad(loss, variance_B)[0][0] * sign > 0
        )  # of the anchor, on which the mean does not depend
    assert gap(loc_BE, 1).shape == (1, 1)


def test_mining_is_what_the_settings_say():
    needs = make_head({"kind": "bayesian_triplet", "mining": "head", "pool": 77, "negatives": 3}).needs
    assert (needs.sampling, needs.mining, needs.pool, needs.group, needs.together) == ("triplets", "head", 77, 5, 5)
