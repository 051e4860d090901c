"""The networks: the paper's two convolutions (LAM, App. G.2), and on their features a head of this package.

Shape suffixes: B images, H height, W width, D features, E dimensions of the embedding, S samples, P pairs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from benchmarks.reproductions.digits import SIDE
from benchmarks.reproductions.lam_fashion.settings import Settings
from pipeline.heads._positive import Positive, SpreadConfig
from pipeline.heads.base import RepresentationBatch, Summary
from pipeline.heads.hib import HIB
from pipeline.heads.lam import LAM, inverse_concentration, linear
from pipeline.heads.pfe import mutual_likelihood

Posterior = Literal["online", "post_hoc"]


@dataclass(frozen=True, kw_only=True)
class Embedded:
    """What a network says of images.

    Attributes:
        embedding_BE: their places.
        sample_SBE: samples of them; None: it has no distribution.
        uncertainty_B: higher = less sure; None as before.
    """

    embedding_BE: Tensor
    sample_SBE: Tensor | None = None
    uncertainty_B: Tensor | None = None


def on_sphere(embedding_BE: Tensor, sample_SBE: Tensor) -> Embedded:
    """With 1/κ of the samples, which are projected onto the sphere (Sec. 3: so are the rivals' in the paper)."""
    unit_SBE = normalize(sample_SBE, dim=-1)
    return Embedded(
        embedding_BE=normalize(embedding_BE, dim=-1),
        sample_SBE=unit_SBE,
        uncertainty_B=inverse_concentration(unit_SBE),
    )


class Network(nn.Module, ABC):
    """Body and head as one."""

    metric: Literal["cosine", "l2"] = "cosine"

    @property
    def running(self) -> list[tuple[nn.Parameter, float]]:
        """State that follows the batches, and the share of each that is kept in a step; see ``Head.running``."""
        return []

    @abstractmethod
    def loss(self, pixel_BHW: Tensor, label_B: Tensor) -> Tensor:
        """Of a batch whose images are compared with each other."""

    @abstractmethod
    def embed(self, pixel_BHW: Tensor, samples: int, seed: int) -> Embedded:
        """``samples`` of each image; of the weights the same ones for all images."""


def body(settings: Settings, dropout: float = 0.0) -> nn.Sequential:
    """Convolution, ReLU, convolution, ReLU, max-pooling of 2 × 2, flattened: (B, 1, 28, 28) → (B, D)."""
    channels = settings.channels
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        first, second = (nn.Conv2d(a, b, 3) for a, b in ((1, channels[0]), channels))
    drop = [nn.Dropout(dropout)] if dropout else []
    # pooling before the ReLU is the same, and a quarter of the work; channels last are faster on a CPU
    made = nn.Sequential(first, nn.ReLU(), *drop, second, nn.MaxPool2d(2), nn.ReLU(), nn.Flatten(), *drop)
    return made.to(memory_format=torch.channels_last)


def features(settings: Settings) -> int:
    """D."""
    return settings.channels[1] * ((SIDE - 4) // 2) ** 2


class Laplacian(Network):
    """Points by the contrastive loss, and the posterior of their last layer: the head ``lam`` without hidden layers."""

    def __init__(self, settings: Settings, posterior: Posterior, *, rows: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.body = body(settings, dropout)
        config = LAM.Config(
            dimension=settings.dimension,
            projection_layers=0,
            negatives=settings.negatives,
            mining=settings.mining,
            margin=settings.margin,
            posterior=posterior,
            hessian=settings.hessian,
            distance=settings.distance,
            memory=settings.memory,
            prior_precision=settings.prior_precision,
            observations=settings.observations,
            samples=settings.samples,
        )
        self.head = LAM(config, seed=settings.seed)
        self.head.prepare(Summary(width=features(settings), rows=rows, num_classes=10))

    @property
    def running(self) -> list[tuple[nn.Parameter, float]]:
        """The curvature, of online."""
        named = dict(self.head.named_parameters())
        return [(named[name], share) for name, share in self.head.running.items()]

    def loss(self, pixel_BHW: Tensor, label_B: Tensor) -> Tensor:
        """Eq. 1."""
        return self.head.loss_within(self.body(pixel_BHW), label_B)

    def embed(self, pixel_BHW: Tensor, samples: int, seed: int) -> Embedded:
        """By sampled weights."""
        feature_BD = self.body(pixel_BHW)
        sample_SBE = self.head.sample(feature_BD, samples, torch.Generator().manual_seed(seed))
        return on_sphere(self.points(feature_BD), sample_SBE)

    def points(self, feature_BD: Tensor) -> Tensor:
        """By the mean weights, (B, E)."""
        return linear(feature_BD, self.head.last.weight) + self.head.last.bias


class Points(Laplacian):
    """The same without a distribution."""

    def embed(self, pixel_BHW: Tensor, samples: int, seed: int) -> Embedded:
        """Points."""
        return Embedded(embedding_BE=normalize(self.points(self.body(pixel_BHW)), dim=-1))


class Dropout(Laplacian):
    """The same with inputs of its layers that drop out, in use as well: the embedding is the mean of the samples."""

    def embed(self, pixel_BHW: Tensor, samples: int, seed: int) -> Embedded:
        """By ``samples`` passes."""
        mode = self.training
        self.train()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            passes = [normalize(self.points(self.body(pixel_BHW)), dim=-1) for _ in range(samples)]
        self.train(mode)
        sample_SBE = torch.stack(passes)
        return on_sphere(sample_SBE.mean(0), sample_SBE)


class Ensemble(Network):
    """Points of several networks as samples, and their mean."""

    def __init__(self, members: list[Points]) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)

    def loss(self, pixel_BHW: Tensor, label_B: Tensor) -> Tensor:
        """The members learn alone."""
        raise NotImplementedError

    def embed(self, pixel_BHW: Tensor, samples: int, seed: int) -> Embedded:
        """As many samples as there are members."""
        points = [cast(Points, member).embed(pixel_BHW, samples, seed) for member in self.members]
        sample_SBE = torch.stack([point.embedding_BE for point in points])
        return on_sphere(sample_SBE.mean(0), sample_SBE)


class Spread(Network):
    """PFE: points that stay as they are, and a network of their variances, which learns from pairs of a class."""

    def __init__(self, points: Points, settings: Settings) -> None:
        super().__init__()
        self.points = points.requires_grad_(False)
        generator = torch.Generator().manual_seed(settings.seed)
        config = SpreadConfig(hidden=settings.hidden, layers=1)
        self.variance = Positive(features(settings), config, settings.dimension, generator, initial=0.1)

    def loss(self, pixel_BHW: Tensor, label_B: Tensor) -> Tensor:
        """Minus the mean mutual likelihood score of all pairs of a class."""
        loc_BE, variance_BE = self._moments(pixel_BHW)
        one_P, other_P = torch.triu_indices(len(label_B), len(label_B), 1)
        same = label_B[one_P] == label_B[other_P]
        one_P, other_P = one_P[same], other_P[same]
        return -mutual_likelihood(loc_BE[one_P], variance_BE[one_P], loc_BE[other_P], variance_BE[other_P]).mean()

    def _moments(self, pixel_BHW: Tensor) -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            feature_BD = self.points.body(pixel_BHW)
            loc_BE = normalize(self.points.points(feature_BD), dim=-1)
        return loc_BE, self.variance(feature_BD)

    def embed(self, pixel_BHW: Tensor, samples: int, seed: int) -> Embedded:
        """Samples of N(μ, diag σ²)."""
        loc_BE, variance_BE = self._moments(pixel_BHW)
        noise_SBE = torch.randn((samples, *loc_BE.shape), generator=torch.Generator().manual_seed(seed))
        return on_sphere(loc_BE, loc_BE + variance_BE.sqrt() * noise_SBE)


class Hedged(Network):
    """HIB: Gaussians in the whole space, compared by their distances; the uncertainty is η."""

    metric = "l2"

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.body = body(settings)
        config = HIB.Config(
            dimension=settings.dimension,
            projection_layers=0,
            hidden=settings.hidden,
            layers=1,
            samples=settings.match_samples,
            partners=settings.batch // 2 - 1,
            beta=2 * settings.beta,  # the head counts the divergence of each row once; Eq. 8 counts both of a pair
        )
        self.head = HIB(config, seed=settings.seed)
        self.head.prepare(Summary(width=features(settings), rows=0, num_classes=10))

    def loss(self, pixel_BHW: Tensor, label_B: Tensor) -> Tensor:
        """Eq. 8 of all pairs of the batch."""
        batch = RepresentationBatch(
            representation_BVD=self.body(pixel_BHW)[:, None], row_B=torch.arange(len(label_B)), label_B=label_B
        )
        return self.head.loss(batch).total

    def embed(self, pixel_BHW: Tensor, samples: int, seed: int) -> Embedded:
        """The means and samples of the Gaussians."""
        feature_BD = self.body(pixel_BHW)
        output = self.head(feature_BD)
        return Embedded(
            embedding_BE=output.embedding_BE,
            sample_SBE=self.head.sample(feature_BD, samples, torch.Generator().manual_seed(seed)),
            uncertainty_B=output.uncertainty_B,
        )
