"""The generative process with known posteriors: thesis App. B (MCInfoNCE), Sec. 3, 4.1, B.1 and B.2.

Inputs x are uniform in [0, 1]^X. P(z|x) has the mode μ(x) on the sphere and the concentration κ(x), both by small
random networks. Pairs of inputs are positives if latents of theirs are (Eq. 3).

- ``positives=eq_53`` accepts a pair of latents with the probability that they are positive, Eq. 53:
  σ(κ_pos z₁ᵀz₂ − log(C(0)/C(κ_pos))), which is near 1 for all cosines above some threshold;
- ``positives=eq_3`` accepts it with the probability exp(κ_pos (z₁ᵀz₂ − 1)), so that z₂ given z₁ is vMF(z₁, κ_pos).

Not in the text, but in the authors' code (github.com/mkirchhof/Probabilistic_Contrastive_Learning) and here: μ(x) is
first trained to spread over the sphere. Without that, cosines of random pairs are about .93 ± .06.

Shape suffixes: N inputs, X their width, D dimension of the latents, P pairs.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize, softplus

from pipeline.distributions import VonMisesFisher
from pipeline.distributions.bessel import log_hyp0f1
from pipeline.heads._mlp import linear

Family = Literal["vmf", "gaussian", "laplace"]
Positives = Literal["eq_53", "eq_3"]
SLOPE = 0.2  # of the leaky ReLU, as in Zimmermann et al. (2021)
LARGEST_LEAST_COSINE = 0.5  # B.1: a process is drawn anew if no pair of 1,000 is further apart
POOL = {"eq_53": 256, "eq_3": 1024}  # references and candidates of a round of rejection; 5 % or .02 % are accepted


class InRange(nn.Module):
    """exp(a · softplus(network) + b), in [least, largest] on a sample of inputs."""

    def __init__(self, network: nn.Module, least: float, largest: float, sample_NX: Tensor) -> None:
        super().__init__()
        self.network = network
        with torch.no_grad():
            value_N = softplus(network(sample_NX)).squeeze(-1)
        slope = math.log(largest / least) / float(value_N.max() - value_N.min())
        self.slope, self.offset = slope, math.log(largest) - slope * float(value_N.max())

    def forward(self, x_NX: Tensor) -> Tensor:
        """κ, (N,)."""
        return torch.exp(self.slope * softplus(self.network(x_NX)).squeeze(-1) + self.offset)


class Process(nn.Module):
    """P(z|x), and inputs whose latents are positive to each other.

    Args:
        dimension: D, and X.
        least: of κ(x) on 1,000 inputs; infinity: z = μ(x).
        largest: of κ(x).
        family: of P(z|x): vMF(μ, κ), or normal or Laplace noise with the scale 1/√κ or 1/κ, set to length 1 (Table 6).
        positives: which law pairs have.
        kappa_pos: how near latents are that are positive.
        seed: of the networks.
        spread_steps: of the training that spreads μ(x).
    """

    def __init__(
        self,
        *,
        dimension: int,
        least: float,
        largest: float,
        family: Family = "vmf",
        positives: Positives = "eq_53",
        kappa_pos: float = 20.0,
        seed: int = 0,
        spread_steps: int = 5000,
    ) -> None:
        super().__init__()
        self.dimension, self.family, self.positives, self.kappa_pos = dimension, family, positives, kappa_pos
        generator = torch.Generator().manual_seed(seed)
        self.mean_network = _spread_network(dimension, spread_steps, generator)
        hidden, out = (linear(dimension, size, generator) for size in (dimension, 1))
        network = nn.Sequential(hidden, nn.LeakyReLU(SLOPE), out)
        sample_NX = torch.rand(1000, dimension, generator=generator)
        self.concentration = None if math.isinf(least) else InRange(network, least, largest, sample_NX)
        self.requires_grad_(False)
        self.threshold = float(log_hyp0f1(torch.tensor(kappa_pos), dimension))  # log C(0) − log C(κ_pos)

    def mean(self, x_NX: Tensor) -> Tensor:
        """μ(x), (N, D)."""
        return normalize(self.mean_network(x_NX), dim=-1)

    def kappa(self, x_NX: Tensor) -> Tensor:
        """κ(x), (N,)."""
        return torch.full_like(x_NX[:, 0], math.inf) if self.concentration is None else self.concentration(x_NX)

    def inputs(self, count: int, generator: torch.Generator | None = None) -> Tensor:
        """Uniform, (N, X)."""
        return torch.rand(count, self.dimension, generator=generator)

    def latents(self, x_NX: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """One of P(z|x) for each input, (N, D)."""
        mu_ND, kappa_N = self.mean(x_NX), self.kappa(x_NX)
        if self.concentration is None:
            return mu_ND
        if self.family == "vmf":
            return VonMisesFisher(mu_ND, kappa_N, validate_args=False).sample((), generator)
        if self.family == "gaussian":
            noise_ND = torch.randn(mu_ND.shape, generator=generator) / kappa_N.sqrt()[:, None]
        else:
            uniform_ND = torch.rand(mu_ND.shape, generator=generator) - 0.5
            noise_ND = -uniform_ND.sign() * torch.log1p(-2 * uniform_ND.abs()) / kappa_N[:, None]
        return normalize(mu_ND + noise_ND, dim=-1)

    def nearness(self, x_NX: Tensor, samples: int = 256) -> Tensor:
        """−E|1 − zᵀμ(x)|, (N,): how near the latents of an input are, comparable between families (Sec. 5.1)."""
        generator = torch.Generator().manual_seed(0)
        mu_ND, total_N = self.mean(x_NX), torch.zeros(len(x_NX))
        for _ in range(samples):
            total_N -= 1 - (self.latents(x_NX, generator) * mu_ND).sum(-1)
        return total_N / samples

    def log_acceptance(self, cosine: Tensor) -> Tensor:
        """log of the probability with which latents of this cosine are taken for positive."""
        if self.positives == "eq_53":
            return nn.functional.logsigmoid(self.kappa_pos * cosine - self.threshold)
        return self.kappa_pos * (cosine - 1)

    def pairs(self, count: int, generator: torch.Generator | None = None) -> Tensor:
        """Inputs that are positive to each other, (2P, X): rows (0, 1), (2, 3), … belong together.

        Every reference of a pool is tried with every candidate. Of the pairs that are accepted at most half as many are
        taken as there are references, so that few of them share an input.
        """
        found, wanted, pool = [], count, POOL[self.positives]
        while wanted > 0:
            x_NX = self.inputs(2 * pool, generator)
            z_ND = self.latents(x_NX, generator)
            chance = self.log_acceptance(z_ND[:pool] @ z_ND[pool:].T).exp()
            accepted = torch.nonzero(torch.rand(chance.shape, generator=generator) < chance)
            taken_P2 = accepted[torch.randperm(len(accepted), generator=generator)[: min(wanted, pool // 2)]]
            found.append(torch.stack([x_NX[taken_P2[:, 0]], x_NX[pool + taken_P2[:, 1]]], dim=1))
            wanted -= len(taken_P2)
        return torch.cat(found).flatten(0, 1)


def _spread_network(dimension: int, steps: int, generator: torch.Generator) -> nn.Module:
    """Three linear layers (B.1), drawn until they are not collapsed."""
    while True:
        layers = [_well_conditioned(dimension, generator) for _ in range(3)]
        network = nn.Sequential(layers[0], nn.LeakyReLU(SLOPE), layers[1], nn.LeakyReLU(SLOPE), layers[2])
        _spread(network, dimension, steps, generator)
        with torch.no_grad():
            mu_ND = normalize(network(torch.rand(1000, dimension, generator=generator)), dim=-1)
        if (mu_ND @ mu_ND.T).min() <= LARGEST_LEAST_COSINE:
            return network


def _well_conditioned(dimension: int, generator: torch.Generator) -> nn.Linear:
    """Zimmermann et al.: columns uniform in ±1, of unit length; the quarter of them with the least condition number."""
    made: nn.Linear = nn.utils.skip_init(nn.Linear, dimension, dimension, bias=False)
    tried = normalize(2 * torch.rand(1000, dimension, dimension, generator=generator) - 1, dim=1)
    condition = torch.linalg.cond(tried)
    good = torch.nonzero(condition <= condition.quantile(0.25)).squeeze(-1)
    with torch.no_grad():
        made.weight.copy_(tried[good[int(torch.randint(len(good), (), generator=generator))]])
    return made


def _spread(network: nn.Module, dimension: int, steps: int, generator: torch.Generator) -> None:
    """Train 1 − cosine/2 towards the distance of the inputs, near pairs more than far ones."""
    optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
    upper = torch.triu(torch.ones(64, 64, dtype=torch.bool), diagonal=1)
    for _ in range(steps):
        x_NX = torch.rand(64, dimension, generator=generator)
        mu_ND = normalize(network(x_NX), dim=-1)
        wanted, found = torch.cdist(x_NX, x_NX)[upper], 1 - (mu_ND @ mu_ND.T)[upper] / 2
        loss = ((wanted - found).square() * (math.sqrt(2) - found.detach()) ** 4).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
