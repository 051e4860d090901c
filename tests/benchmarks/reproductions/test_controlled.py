"""The process against its definition, the scores of the truth itself, and a run that is stopped and goes on."""

import math

import numpy as np
import pytest
import torch
from torch.nn.functional import normalize

from benchmarks.reproductions import runs
from benchmarks.reproductions.controlled.losses import loss_of
from benchmarks.reproductions.controlled.process import LARGEST_LEAST_COSINE, InRange, Process
from benchmarks.reproductions.controlled.scoring import evaluate
from benchmarks.reproductions.controlled.settings import Settings
from benchmarks.reproductions.controlled.training import run
from pipeline.distributions import VonMisesFisher
from pipeline.distributions.bessel import bessel_ratio
from pipeline.progress import Silent
from tests.benchmarks.reproductions.stopping import Stopped, StopsAt


def made(**settings):
    return Process(**{"dimension": 3, "least": 16.0, "largest": 32.0, "spread_steps": 30, "seed": 1, **settings})


@pytest.fixture(scope="module")
def process():
    return made()


def test_kappa_has_its_range_and_directions_are_spread(process):
    x_NX = process.inputs(1000, torch.Generator().manual_seed(0))
    kappa_N, mu_ND = process.kappa(x_NX), process.mean(x_NX)
    assert 15 < kappa_N.min() < 17.5
    assert 29 < kappa_N.max() < 35
    assert torch.allclose(torch.linalg.vector_norm(mu_ND, dim=-1), torch.ones(1000))
    assert (mu_ND @ mu_ND.T).min() < LARGEST_LEAST_COSINE + 0.1
    again = made()
    assert torch.equal(again.mean(x_NX), mu_ND)
    assert torch.equal(again.kappa(x_NX), kappa_N)


def test_the_range_is_met_on_the_sample():
    sample_NX = torch.randn(50, 3, generator=torch.Generator().manual_seed(0))
    value_N = InRange(torch.nn.Linear(3, 1), 2.0, 9.0, sample_NX)(sample_NX)
    assert [value_N.min().item(), value_N.max().item()] == pytest.approx([2, 9], rel=1e-4)


def test_latents_have_the_law_of_their_family(process):
    x_1X = process.inputs(1, torch.Generator().manual_seed(0))
    kappa, many_NX = process.kappa(x_1X), x_1X.expand(10_000, 3)
    cosine_N = (process.latents(many_NX, torch.Generator().manual_seed(1)) * process.mean(x_1X)).sum(-1)
    assert cosine_N.mean().item() == pytest.approx(bessel_ratio(kappa, 3).item(), abs=4 * cosine_N.std() / 10_000**0.5)
    assert process.nearness(x_1X, samples=1000).item() == pytest.approx(cosine_N.mean() - 1, abs=0.005)
    assert torch.equal(made(least=math.inf, largest=math.inf).latents(x_1X), process.mean(x_1X))
    # noise of variance 1/κ, or of mean absolute value 1/κ, in each of three coordinates
    gaussian, laplace = (
        made(family=name).latents(many_NX, torch.Generator().manual_seed(1)) for name in ("gaussian", "laplace")
    )
    assert (gaussian * process.mean(x_1X)).sum(-1).mean().item() == pytest.approx(1 - 1 / kappa.item(), abs=0.01)
    assert (laplace * process.mean(x_1X)).sum(-1).mean().item() == pytest.approx(1 - 2 / kappa.item() ** 2, abs=0.003)


def test_the_chance_of_being_accepted_by_its_formulas():
    def area(kappa):  # C_3(κ)
        return kappa / (4 * math.pi * math.sinh(kappa))

    cosine = torch.tensor([-0.5, 0.2, 0.9])
    positive = [area(5) * math.exp(5 * c) for c in cosine.tolist()]
    wanted = [p / (p + 1 / (4 * math.pi)) for p in positive]
    assert made(kappa_pos=5.0).log_acceptance(cosine).exp().tolist() == pytest.approx(wanted, rel=1e-5)
    ratio = made(kappa_pos=5.0, positives="eq_3").log_acceptance(cosine).diff()
    assert ratio.tolist() == pytest.approx((5 * cosine.diff()).tolist())


@pytest.mark.parametrize("positives", ["eq_53", "eq_3"])
def test_pairs_have_the_density_of_the_acceptance(positives):
    """Cosines of accepted pairs against independent pairs that are weighted instead."""
    process = made(least=math.inf, largest=math.inf, kappa_pos=5.0, positives=positives)
    pair_P2X = process.pairs(4000, torch.Generator().manual_seed(0)).view(-1, 2, 3)
    found_P = (process.mean(pair_P2X[:, 0]) * process.mean(pair_P2X[:, 1])).sum(-1)
    other_P2X = process.inputs(100_000, torch.Generator().manual_seed(1)).view(-1, 2, 3)
    cosine_P = (process.mean(other_P2X[:, 0]) * process.mean(other_P2X[:, 1])).sum(-1)
    weight_P = process.log_acceptance(cosine_P).exp()
    for power in (1, 2):
        wanted = (weight_P * cosine_P**power).sum() / weight_P.sum()
        assert (found_P**power).mean().item() == pytest.approx(wanted.item(), abs=6 * found_P.std().item() / 4000**0.5)
    assert found_P.mean() > cosine_P.mean() + 3 * cosine_P.std() / 4000**0.5


class Turned:
    """The truth, all directions turned, κ times a factor."""

    def __init__(self, process, factor):
        self.process, self.factor = process, factor
        self.turn, _ = torch.linalg.qr(torch.randn(3, 3, generator=torch.Generator().manual_seed(4)))

    def __call__(self, x_NX):
        return VonMisesFisher(
            normalize(self.process.mean(x_NX) @ self.turn, dim=-1), self.factor * self.process.kappa(x_NX)
        )


def test_the_truth_is_right_up_to_a_turn(process):
    scores = evaluate(process, Turned(process, 1.0), 300, seed=0)
    assert scores["location_rmse"] < 1e-5
    assert scores["location_rank"] == pytest.approx(1, abs=1e-4)
    assert [scores["kappa_rmse"], scores["kappa_rank"]] == [0, 1]
    twice = evaluate(process, Turned(process, 2.0), 300, seed=0)
    truth_N = np.array(twice["shown"]["true"])
    assert twice["kappa_rmse"] == pytest.approx(np.sqrt((truth_N**2).mean()), rel=1e-3)
    assert twice["kappa_rank"] == 1
    assert evaluate(process, Turned(process, 1.0), 300, seed=0, certainty=False)["kappa_rank"] is None


def drawn(samples):
    """Posteriors of two pairs and three negatives, and what a loss draws of them after seed 0."""
    generator = torch.Generator().manual_seed(1)
    loc_7E = normalize(torch.randn(7, 3, generator=generator, dtype=torch.float64), dim=-1)
    both = VonMisesFisher(loc_7E, torch.linspace(2.0, 30.0, 7, dtype=torch.float64))
    posterior, negatives = (VonMisesFisher(both.loc[p], both.concentration[p]) for p in (slice(4), slice(4, None)))
    torch.manual_seed(0)
    return posterior, negatives, posterior.rsample((samples,)), negatives.rsample((samples,))


@pytest.mark.parametrize("share", ["of_sum", "of_mean"])
def test_every_sample_is_compared_with_every_one_of_the_other(share):
    posterior, negatives, z_SNE, negative_SME = drawn(3)
    total = 0.0
    for row, other in ((0, 1), (1, 0), (2, 3), (3, 2)):
        shares = []
        for i in range(3):
            rivals = sum(math.exp(5 * float(z_SNE[i, row] @ negative_SME[i, m])) for m in range(3))
            for j in range(3):
                alike = math.exp(5 * float(z_SNE[i, row] @ z_SNE[j, other]))
                shares.append(alike / (alike + rivals / (3 if share == "of_mean" else 1)))
        total -= math.log(sum(shares) / 9) / 4
    settings = Settings(seed=0, samples=3, crossed=True, share=share, inverse_temperature=5.0)
    torch.manual_seed(0)
    assert float(loss_of(settings)(posterior, negatives)) == pytest.approx(total, rel=1e-7)


def test_one_sample_has_one_other_to_be_compared_with():
    posterior, negatives, _, _ = drawn(1)
    values = []
    for crossed in (False, True):
        torch.manual_seed(0)
        values.append(float(loss_of(Settings(seed=0, samples=1, crossed=crossed))(posterior, negatives)))
    assert values[0] == pytest.approx(values[1], rel=1e-9)


TINY = {
    "dimension": 3, "encoder_dimension": 3, "hidden": 8, "layers": 1, "spread_steps": 5, "batch": 8,
    "negatives": 5, "samples": 3, "start_steps": 3, "steps": 4, "evaluated": 60,
}  # fmt: skip


@pytest.mark.parametrize("method", ["mc_info_nce", "elk", "hib", "info_nce"])
def test_every_method_learns_what_it_has_to(method, tmp_path):
    start = 4.0 if method == "mc_info_nce" else None
    settings = Settings(**TINY, seed=0, method=method, start_temperature=start, shared=method == "elk")
    scores = run(settings, tmp_path / "state", Silent())["scores"]
    assert -1 <= scores["location_rank"] <= 1
    assert (scores["kappa_rank"] is None) == (method == "info_nce")


@pytest.mark.parametrize("stop", [2, 5])
def test_a_run_that_is_stopped_goes_on_as_if_it_were_not(stop, tmp_path, monkeypatch):
    monkeypatch.setattr(runs, "SECONDS_A_SAVE", 0.0)
    settings = Settings(**TINY, seed=0, start_temperature=4.0)
    whole = run(settings, tmp_path / "whole", Silent())
    with pytest.raises(Stopped):
        run(settings, tmp_path / "stopped", StopsAt(stop))
    assert run(settings, tmp_path / "stopped", Silent())["scores"] == whole["scores"]
