"""A direction μ, and for probabilistic heads a concentration κ, from a representation: what several heads share.

Deviation: κ's network reads the direction e/‖e‖ (``reads=direction``), where URL's reads the embedding. In a short
training the wish of all rows for a larger (or smaller) κ is what moves the network most, and it moves the score of a
row in proportion to ‖e‖: the head turns into an inverse norm, or κ runs to an end of its range and stays there.
Measured in docs/results/heads.md.

Shape suffixes: B rows, D width of the representation, E width of the embedding, S samples, N = B·V.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import normalize, softplus

from pipeline.config import config
from pipeline.distributions import VonMisesFisher
from pipeline.heads._mlp import mlp
from pipeline.heads.base import Head, HeadOutput

LEAST, LARGEST = 1e-6, 1e6  # of κ: 1/κ stays finite, and the distributions are tested to 10⁶
UNIT = 0.6931471805599453  # softplus(0)


@config
class ProjectionConfig:
    """How a learnt projection looks."""

    dimension: Annotated[int, Field(ge=2)] = 128  # E of a learnt projection
    projection_hidden: Annotated[int, Field(ge=1)] = 512  # width of its hidden layers
    projection_layers: Annotated[int, Field(ge=0)] = 1  # its hidden layers; 0: a linear map


@config
class PosteriorConfig(ProjectionConfig):
    """Where the direction comes from, and how the network of the concentration looks."""

    mean: Literal["frozen", "projection"] = "frozen"  # frozen: μ = e/‖e‖, only κ is learnt; projection: μ is learnt too
    hidden: Annotated[int, Field(ge=1)] = 512  # width of the hidden layers of κ's network
    layers: Annotated[int, Field(ge=0)] = 2  # hidden layers of κ's network
    reads: Literal["direction", "representation"] = "direction"  # what κ's network is given: e/‖e‖, or e
    initial_concentration: Annotated[float, Field(gt=0, le=LARGEST)] | None = None  # κ at the start, about; null: E


class Projection(nn.Module):
    """A network onto R^E, before it is scaled to unit length."""

    def __init__(self, width: int, config: ProjectionConfig, generator: torch.Generator) -> None:
        super().__init__()
        self.network = mlp(width, config.projection_hidden, config.projection_layers, config.dimension, generator)

    def forward(self, representation_BD: Tensor) -> Tensor:
        """float32, whatever autocast makes of the products."""
        projected: Tensor = self.network(representation_BD.float())
        return projected.float()


class SpreadNetwork(nn.Module):
    """The network that says how wide a posterior is, before it is made positive: (B, D) → (B, ``outputs``), float32."""

    def __init__(self, width: int, config: PosteriorConfig, outputs: int, generator: torch.Generator) -> None:
        super().__init__()
        self.network = mlp(width, config.hidden, config.layers, outputs, generator)
        self.direction = config.reads == "direction"

    def forward(self, representation_BD: Tensor) -> Tensor:
        """Of any real numbers."""
        x_BD = representation_BD.float()
        score_BO: Tensor = self.network(normalize(x_BD, dim=-1) if self.direction else x_BD)
        return score_BO.float()


class Concentration(SpreadNetwork):
    """κ = κ₀ · softplus(network)/log 2, in [1e-6, 1e6]."""

    def __init__(self, width: int, config: PosteriorConfig, dimension: int, generator: torch.Generator) -> None:
        super().__init__(width, config, 1, generator)
        self.unit = (config.initial_concentration or dimension) / UNIT

    def forward(self, representation_BD: Tensor) -> Tensor:
        """(B,), float32."""
        return (self.unit * softplus(super().forward(representation_BD).squeeze(-1))).clamp(LEAST, LARGEST)


class Posterior(nn.Module):
    """vMF(μ, κ) of a representation."""

    def __init__(self, width: int, config: PosteriorConfig, generator: torch.Generator) -> None:
        super().__init__()
        frozen = config.mean == "frozen"
        self.dimension = width if frozen else config.dimension
        self.projection = None if frozen else Projection(width, config, generator)
        self.concentration = Concentration(width, config, self.dimension, generator)

    def mean(self, representation_BD: Tensor) -> Tensor:
        """μ, (B, E), float32 of unit length (of length 0 where the representation is 0)."""
        projected_BE = representation_BD.float() if self.projection is None else self.projection(representation_BD)
        return normalize(projected_BE, dim=-1)

    def forward(self, representation_BD: Tensor) -> VonMisesFisher:
        """The distribution of each row; its values are not looked at."""
        return VonMisesFisher(self.mean(representation_BD), self.concentration(representation_BD), validate_args=False)

    def embedding(self, representation_BD: Tensor) -> Tensor:
        """What retrieval uses: the representation itself where the mean is frozen, else μ."""
        return representation_BD if self.projection is None else self.mean(representation_BD)


class MeanHead(Head):
    """A head whose mean is the frozen representation or a learnt projection, as ``mean`` of its config says."""

    def __init__(self, config: Any, *, seed: int = 0) -> None:
        super().__init__(config, seed=seed)
        self.keeps_representation = config.mean == "frozen"


class PosteriorHead(MeanHead):
    """Uncertainty = 1/κ of the posterior vMF(μ, κ) of a row.

    Attributes:
        posterior: made in ``prepare``.
    """

    posterior: Posterior

    def forward(self, representation_BD: Tensor) -> HeadOutput:
        """The representation (frozen) or μ, and 1/κ."""
        return HeadOutput(
            embedding_BE=self.posterior.embedding(representation_BD),
            uncertainty={"inverse_concentration": self.posterior.concentration(representation_BD).reciprocal()},
            primary="inverse_concentration",
        )

    def sample(self, representation_BD: Tensor, num_samples: int, generator: torch.Generator) -> Tensor:
        """Of vMF(μ, κ), unit vectors."""
        return self.posterior(representation_BD).sample((num_samples,), generator)


def cosines(a_XE: Tensor, b_YE: Tensor) -> Tensor:
    """All products of unit vectors (…, X, E) and (…, Y, E), in float32 under autocast too: κ·cosine needs its
    digits."""
    with torch.autocast(a_XE.device.type, enabled=False):
        return a_XE.float() @ b_YE.float().mT


def without_self(similarity_NN: Tensor) -> Tensor:
    """Of (…, N, N), the diagonal at −∞: a row is no negative of itself."""
    size = similarity_NN.shape[-1]
    self_NN = torch.eye(size, dtype=torch.bool, device=similarity_NN.device)
    return similarity_NN.masked_fill(self_NN, -torch.inf)


def contrast(similarity_NN: Tensor, label_N: Tensor | None = None) -> Tensor:
    """InfoNCE of a batch with two views of each row: similarity at the positive less log Σ over it and the negatives.

    Rows (0, 1), (2, 3), … are the two views of a row; negatives of one are all views of other rows.

    Args:
        similarity_NN: (…, 2B, 2B), symmetric, in units of the loss (times the inverse temperature).
        label_N: (2B,), rows of the same label are no negatives of each other; None: all are.

    Returns:
        (…, 2B), ≤ 0: log of the share that the positive has.
    """
    size = similarity_NN.shape[-1]
    place_N = torch.arange(size, device=similarity_NN.device)
    partner_N = place_N ^ 1
    positive_N = similarity_NN.gather(-1, partner_N.view(-1, 1).expand(*similarity_NN.shape[:-1], 1)).squeeze(-1)
    if label_N is not None:
        same_NN = (label_N[:, None] == label_N) & (place_N[:, None] != partner_N)
        similarity_NN = similarity_NN.masked_fill(same_NN, -torch.inf)
    return positive_N - torch.logsumexp(without_self(similarity_NN), dim=-1)


def contrast_with(positive_N: Tensor, negative_NM: Tensor) -> Tensor:
    """InfoNCE against negatives that were drawn apart from the batch: log of the positive's share, (…, N), ≤ 0.

    Args:
        positive_N: (…, N), similarity of each view with its positive, in units of the loss.
        negative_NM: (…, N, M), similarities with M negatives.
    """
    return positive_N - torch.logaddexp(positive_N, torch.logsumexp(negative_NM, dim=-1))


def of_partners(value_N: Tensor) -> Tensor:
    """(…, 2B) from (…, B): a value of the pairs (0, 1), (2, 3), … for both of them."""
    return value_N.repeat_interleave(2, dim=-1)
