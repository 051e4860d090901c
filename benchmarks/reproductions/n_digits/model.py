"""The embedding: a shallow network of two convolutions (HIB, Sec. 4.1), and on its features a head of this package.

The head ``hib`` with linear maps is the paper's "shared body and 2D outputs" for Gaussians. A point embedding is the
linear map alone, trained by the soft contrastive loss (Eq. 2, 3) with the same pairs.

Shape suffixes: B images, D features, E dimensions of the embedding, S samples, P pairs.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from benchmarks.reproductions.digits import SIDE
from pipeline.heads._hib import GaussianPosterior, match_loss
from pipeline.heads._mlp import linear
from pipeline.heads.base import RepresentationBatch, Summary
from pipeline.heads.hib import HIB


def body(count: int, channels: tuple[int, int], seed: int) -> nn.Sequential:
    """Two convolutions of 5 × 5, each with a ReLU and a max-pooling of 2 × 2, flattened: (B, 1, 28, 28·N) → (B, D)."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        first, second = (nn.Conv2d(a, b, 5, padding=2) for a, b in ((1, channels[0]), channels))
    # pooling before the ReLU is the same, and a quarter of the work; channels last are twice as fast on a CPU
    made = nn.Sequential(first, nn.MaxPool2d(2), nn.ReLU(), second, nn.MaxPool2d(2), nn.ReLU(), nn.Flatten())
    return made.to(memory_format=torch.channels_last)


def features(count: int, channels: tuple[int, int]) -> int:
    """D."""
    return channels[1] * (SIDE // 4) * (SIDE * count // 4)


class Point(nn.Module):
    """A point embedding and the soft contrastive loss with learnt a and b; the same pairs as in ``hib``."""

    def __init__(self, width: int, dimension: int, partners: int, slope: float, seed: int) -> None:
        super().__init__()
        self.partners = partners
        self.projection = linear(width, dimension, torch.Generator().manual_seed(seed))
        self.log_slope, self.offset = nn.Parameter(torch.tensor(slope).log()), nn.Parameter(torch.zeros(()))

    def loss(self, feature_BD: Tensor, label_B: Tensor) -> Tensor:
        """Each row with the ``partners`` that follow it."""
        z_BE, shifts = self.projection(feature_BD), range(1, min(self.partners + 1, len(label_B)))
        distance_P = torch.cat([torch.linalg.vector_norm(z_BE - z_BE.roll(-by, dims=0), dim=-1) for by in shifts])
        match_P = torch.cat([label_B == label_B.roll(-by) for by in shifts])
        return match_loss((self.offset - self.log_slope.exp() * distance_P)[:, None], match_P)


class Embedder(nn.Module):
    """Body and head as one.

    Args:
        method: ``point``, ``mog_1`` or ``mog_2``.
        count: N.
        dimension: E.
        beta: of HIB.
        samples: of a component, of HIB.
        partners: rows of a batch that each row is compared with.
        slope: a at the start.
        channels: of the two convolutions.
        seed: of all that is drawn at the start.
    """

    def __init__(
        self,
        *,
        method: str,
        count: int,
        dimension: int,
        beta: float,
        samples: int,
        partners: int,
        slope: float,
        channels: tuple[int, int],
        seed: int,
    ) -> None:
        super().__init__()
        self.body = body(count, channels, seed)
        width = features(count, channels)
        self.head: Point | HIB
        if method == "point":
            self.head = Point(width, dimension, partners, slope, seed)
            return
        settings = {"posterior": "gaussian"} if method == "mog_1" else {"posterior": "mixture", "components": 2}
        config = HIB.Config(
            **settings,
            mean="projection",
            dimension=dimension,
            projection_layers=0,
            layers=0,
            samples=samples,
            partners=partners,
            slope=slope,
            beta=beta,
        )
        self.head = HIB(config, seed=seed)
        self.head.prepare(Summary(width=width, rows=0, num_classes=10**count))

    def loss(self, pixel_BHW: Tensor, label_B: Tensor) -> Tensor:
        """Of neighbouring pairs; rows (0, 1), (2, 3), … are of one class."""
        feature_BD = self.body(pixel_BHW)
        if isinstance(self.head, Point):
            return self.head.loss(feature_BD, label_B)
        batch = RepresentationBatch(
            representation_BVD=feature_BD[:, None], row_B=torch.arange(len(label_B)), label_B=label_B
        )
        return self.head.loss(batch).total

    def samples(self, feature_ID: Tensor) -> Tensor:
        """Of each image as many as in training, of all components together; of a point itself, (I, M, E)."""
        if isinstance(self.head, Point):
            point_IE: Tensor = self.head.projection(feature_ID)
            return point_IE[:, None]
        mixture = self.head.config.posterior == "mixture"
        count = self.head.config.samples // (self.head.config.components if mixture else 1)
        return self.head.posterior.draw(feature_ID, max(count, 1)).z_BME

    def self_mismatch(self, feature_ID: Tensor) -> Tensor | None:
        """η, (I,); None of points."""
        return None if isinstance(self.head, Point) else self.head(feature_ID).uncertainty["self_mismatch"]

    def match_probability(self, z_QME: Tensor, z_GME: Tensor) -> Tensor:
        """p of Eq. 5 of each of Q images with each of G, (Q, G)."""
        distance = torch.cdist(z_QME.flatten(0, 1), z_GME.flatten(0, 1), compute_mode="donot_use_mm_for_euclid_dist")
        probability = torch.sigmoid(self.head.offset - self.head.log_slope.exp() * distance)
        return probability.view(*z_QME.shape[:2], *z_GME.shape[:2]).mean((1, 3))

    def pair_probability(self, z_PME: Tensor, other_PME: Tensor) -> Tensor:
        """p of Eq. 5 of pairs, (P,)."""
        distance_PMM = torch.cdist(z_PME, other_PME, compute_mode="donot_use_mm_for_euclid_dist")
        return torch.sigmoid(self.head.offset - self.head.log_slope.exp() * distance_PMM).mean((1, 2))

    def components(self, feature_ID: Tensor) -> tuple[Tensor, Tensor]:
        """Means and standard deviations, (I, K, E)."""
        if isinstance(self.head, Point):
            loc_I1E = self.head.projection(feature_ID)[:, None]
            return loc_I1E, torch.zeros_like(loc_I1E)
        assert isinstance(self.head.posterior, GaussianPosterior)
        return self.head.posterior.components_of(feature_ID)

    def match_parameters(self) -> dict[str, float]:
        """a and b of Eq. 2."""
        return {"a": self.head.log_slope.exp().item(), "b": self.head.offset.item()}
