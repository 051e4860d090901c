"""The embedding: a shallow network of two convolutions (HIB, Sec. 4.1), and on its features a head of this package.

The posterior of the head ``hib`` with linear maps is the paper's "shared body and 2D outputs" for Gaussians. A point
embedding is the linear map alone: one sample, and no divergence. Both are trained by the same loss with the same pairs.

Shape suffixes: B images, N digits of an image, M digits (of samples: M of a row), H height and width, D features, E
dimensions of the embedding, P pairs.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from benchmarks.reproductions.digits import SIDE
from benchmarks.reproductions.n_digits.images import Step
from pipeline.heads._hib import GaussianPosterior, match_loss
from pipeline.heads._mlp import linear
from pipeline.heads.base import Summary
from pipeline.heads.hib import HIB

TINY = 1e-10  # squares of distances, so that the root has a gradient


class Body(nn.Module):
    """Of each digit two convolutions of 5 × 5, each with a max-pooling of 2 × 2 and a ReLU; of all a layer with a ReLU.

    Args:
        count: N.
        channels: of the two convolutions.
        hidden: D.
        seed: of the parameters.
    """

    def __init__(self, *, count: int, channels: tuple[int, int], hidden: int, seed: int) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            first, second = (nn.Conv2d(a, b, 5, padding=2) for a, b in ((1, channels[0]), channels))
        # pooling before the ReLU is the same, and a quarter of the work; channels last are twice as fast on a CPU
        made = nn.Sequential(first, nn.MaxPool2d(2), nn.ReLU(), second, nn.MaxPool2d(2), nn.ReLU(), nn.Flatten())
        self.convolutions = made.to(memory_format=torch.channels_last)
        generator = torch.Generator().manual_seed(seed)
        width = channels[1] * (SIDE // 4) ** 2
        self.places = nn.ModuleList(linear(width, hidden, generator) for _ in range(count))

    def forward(self, pixel_BHW: Tensor) -> Tensor:
        """(B, 1, 28, 28·N) → (B, D)."""
        count = len(self.places)
        pixel_MHW = pixel_BHW.view(-1, 1, SIDE, count, SIDE).movedim(3, 1).flatten(0, 1)
        return self.of_digits(pixel_MHW, torch.arange(len(pixel_MHW)).view(-1, count))

    def of_digits(self, pixel_MHW: Tensor, index_BN: Tensor) -> Tensor:
        """The same of images that are combinations of (M, 1, 28, 28) digits: the convolutions see each only once."""
        seen_MD = self.convolutions(pixel_MHW)
        return sum(
            (place(seen_MD)[index_B] for place, index_B in zip(self.places, index_BN.unbind(1), strict=True)),
            seen_MD.new_zeros(()),
        ).relu()


class Point(nn.Module):
    """A point embedding, with a and b of Eq. 2."""

    def __init__(self, width: int, dimension: int, slope: float, seed: int) -> None:
        super().__init__()
        self.projection = linear(width, dimension, torch.Generator().manual_seed(seed))
        self.log_slope, self.offset = nn.Parameter(torch.tensor(slope).log()), nn.Parameter(torch.zeros(()))


class Embedder(nn.Module):
    """Body and head as one.

    Args:
        method: ``point``, ``mog_1`` or ``mog_2``.
        count: N.
        dimension: E.
        beta: of HIB, Eq. 8.
        samples: of a component, of HIB.
        partners: images of a step that each is compared with.
        match_share: weight of the pairs that match, in [0, 1]; the others have the rest.
        slope: a at the start.
        initial_scale: standard deviations at the start, about, of HIB.
        channels: of the two convolutions.
        hidden: width of the layer behind them.
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
        match_share: float,
        slope: float,
        initial_scale: float,
        channels: tuple[int, int],
        hidden: int,
        seed: int,
    ) -> None:
        super().__init__()
        self.partners, self.match_share, self.beta = partners, match_share, beta
        self.body = Body(count=count, channels=channels, hidden=hidden, seed=seed)
        self.head: Point | HIB
        if method == "point":
            self.head = Point(hidden, dimension, slope, seed)
            return
        settings = {"posterior": "gaussian"} if method == "mog_1" else {"posterior": "mixture", "components": 2}
        config = HIB.Config(
            **settings,
            mean="projection",
            dimension=dimension,
            projection_layers=0,
            layers=0,
            reads="representation",  # the feature itself, as the mean's map; its direction alone can say little here
            samples=samples,
            slope=slope,
            initial_scale=initial_scale,
        )
        self.head = HIB(config, seed=seed)
        self.head.prepare(Summary(width=hidden, rows=0, num_classes=10**count))

    def loss(self, step: Step) -> Tensor:
        """Eq. 8 of each image with the ``partners`` that follow it."""
        feature_BD = self.body.of_digits(step.pixel_MHW, step.index_BN)
        if isinstance(self.head, Point):
            z_BME, divergence = self.head.projection(feature_BD)[:, None], feature_BD.new_zeros(())
        else:
            drawn = self.head.posterior.draw(feature_BD, self.head.config.samples)
            z_BME, divergence = drawn.z_BME, drawn.divergence_B.mean()
        shifts = range(1, min(self.partners + 1, len(z_BME)))
        # half the time of torch.cdist, which is slow for many small products
        square_PMM = torch.cat([(z_BME[:, :, None] - z_BME.roll(-by, 0)[:, None]).square().sum(-1) for by in shifts])
        match_P = torch.cat([step.label_B == step.label_B.roll(-by) for by in shifts])
        log_odds_PMM = self.head.offset - self.head.log_slope.exp() * square_PMM.clamp_min(TINY).sqrt()
        matches = match_loss(log_odds_PMM.flatten(1), match_P, match_share=self.match_share)
        return matches + 2 * self.beta * divergence  # of each image one; a pair has two

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
