"""HET-XL: the representation is a Gaussian with a low-rank and diagonal covariance, through which a classifier looks.

*Massively scaling heteroscedastic classifiers* (Collier et al., ICLR 2023) in the form of *URL* (Kirchhof 2024, thesis
App. C, B.7, Eq. 6): φ(x) + ε with ε ~ N(0, V(x)ᵀV(x) + diag d(x)), V and d by a linear layer; the loss is −log
E_ε softmax_τ(W(φ + ε)) at the label, with S samples and τ learnt. The score is the ``entropy`` of those mean class
probabilities in nats, between 0 and log C; beside it ``log_determinant``, log det Σ of the covariance in nats, any real
number: URL's u = det Σ, whose order it has.

In use the S draws come from the head's seed and are the same for all rows, so that a row that is asked twice is
answered the same.

Deviations: the backbone is frozen, so φ is the representation itself and only covariance, classifier and τ are learnt.
V and √d are in units of the store's scale, and small at the start (``initial_scale``).

Cost: (R + 1)·D² weights beside the classifier's C·(D + 1); a loss and a score are S products with the classifier. Take
it where labels are noisy in ways that classes share.

Shape suffixes: B rows, V views, D width, C classes, R rank, S samples, N = B·V.
"""

from __future__ import annotations

import math
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import softplus

from pipeline.config import config
from pipeline.heads._classes import log_probability, pooled_entropies, require_classes
from pipeline.heads._mlp import linear
from pipeline.heads._spherical import UNIT
from pipeline.heads.base import Head, HeadOutput, LossOutput, Needs, RepresentationBatch, Summary
from pipeline.tuning.space import Space, Span

LEAST = 1e-6  # of √d, in units of the store's scale: the determinant stays finite


@config
class Config:
    """The covariance, and how it is sampled."""

    rank: Annotated[int, Field(ge=1)] = 1  # R, rows of V; URL: 1
    samples: Annotated[int, Field(ge=2)] = 16  # S, of each row
    temperature: Annotated[float, Field(gt=0)] = 1.0  # τ at the start
    initial_scale: Annotated[float, Field(gt=0)] = 0.1  # √d at the start, about, in units of the store's scale


class HetXL(Head):
    """Uncertainty = entropy of the mean class probabilities under the covariance; the embedding stays as it is."""

    Config = Config
    keeps_representation = True
    low_rank_noise_SR: Tensor
    noise_SD: Tensor

    @property
    def needs(self) -> Needs:
        """Labels; samples are drawn for the rows of a part together."""
        return Needs(labels=True)

    @property
    def search(self) -> Space:
        """The temperature, and the covariance at the start."""
        return {"temperature": Span(low=0.1, high=10.0), "initial_scale": Span(low=0.01, high=1.0)}

    def prepare(self, summary: Summary) -> None:
        """Make the covariance's layer, the classifier and τ, and draw the noise of use.

        Raises:
            UserError: the store has no classes.
        """
        classes, generator = require_classes("het_xl", summary), torch.Generator().manual_seed(self.seed)
        self.scale, width, settings = summary.scale or 1.0, summary.width, self.config
        self.classifier = linear(width, classes, generator)
        self.covariance = linear(width, (settings.rank + 1) * width, generator)
        self.log_temperature = nn.Parameter(torch.tensor(settings.temperature).log())
        self.register_buffer("low_rank_noise_SR", torch.randn(settings.samples, settings.rank, generator=generator))
        self.register_buffer("noise_SD", torch.randn(settings.samples, width, generator=generator))

    def _factors(self, x_BD: Tensor) -> tuple[Tensor, Tensor]:
        """V (B, R, D) and √d (B, D), float32, in the representation's units."""
        raw_BRD = self.covariance(x_BD / self.scale).float().unflatten(-1, (self.config.rank + 1, -1))
        unit = self.config.initial_scale * self.scale
        deviation_BD = (softplus(raw_BRD[:, -1]) / UNIT).clamp_min(LEAST)
        return unit * raw_BRD[:, :-1], unit * deviation_BD

    def _samples(self, x_BD: Tensor, low_rank_noise_SBR: Tensor, noise_SBD: Tensor) -> Tensor:
        factor_BRD, deviation_BD = self._factors(x_BD)
        return x_BD + (low_rank_noise_SBR[..., None] * factor_BRD).sum(-2) + noise_SBD * deviation_BD

    def loss(self, batch: RepresentationBatch) -> LossOutput:
        """Eq. 6, summed over labelled rows and views and divided by all; samples have their gradient in V and d."""
        assert batch.label_B is not None
        x_ND = batch.representation_BVD.flatten(0, 1).float()
        label_N = batch.label_B.repeat_interleave(batch.representation_BVD.shape[1])
        samples, rows = self.config.samples, len(x_ND)
        noise = (torch.randn(samples, rows, size, device=x_ND.device) for size in (self.config.rank, x_ND.shape[1]))
        z_SND = self._samples(x_ND, *noise) * (-self.log_temperature).exp()
        bias_C = self.classifier.bias * (-self.log_temperature).exp()
        label_SN = label_N.repeat(samples)
        log_p_SN = log_probability(z_SND.flatten(0, 1), self.classifier.weight, bias_C, label_SN).view(samples, rows)
        total = (math.log(samples) - torch.logsumexp(log_p_SN, dim=0)).mean()
        return LossOutput(total=total, parts={"temperature": self.log_temperature.detach().exp()})

    def forward(self, representation_BD: Tensor) -> HeadOutput:
        """The representation untouched, and the two scores."""
        x_BD = representation_BD.float()
        z_SBD = self._samples(x_BD, self.low_rank_noise_SR[:, None], self.noise_SD[:, None])

        def logits_of(some: slice) -> Tensor:
            logits_SBc = z_SBD @ self.classifier.weight[some].T + self.classifier.bias[some]
            return logits_SBc * (-self.log_temperature).exp()

        entropy_B, _ = pooled_entropies(
            logits_of, classes=len(self.classifier.bias), members=len(z_SBD), rows=len(x_BD)
        )
        return HeadOutput(
            embedding_BE=representation_BD,
            uncertainty={"entropy": entropy_B, "log_determinant": self._log_determinant(x_BD)},
            primary="entropy",
        )

    def _log_determinant(self, x_BD: Tensor) -> Tensor:
        """log det(VᵀV + diag d) = Σ log d + log det(I + V diag(1/d) Vᵀ), the second of R rows; (B,)."""
        factor_BRD, deviation_BD = self._factors(x_BD)
        scaled_BRD = factor_BRD / deviation_BD[:, None]
        inner_BRR = torch.eye(self.config.rank, device=x_BD.device) + scaled_BRD @ scaled_BRD.mT
        return 2 * deviation_BD.log().sum(-1) + torch.logdet(inner_BRR)

    @torch.no_grad()
    def sample(self, representation_BD: Tensor, num_samples: int, generator: torch.Generator) -> Tensor:
        """φ + ε."""
        x_BD = representation_BD.float()
        noise = (
            torch.randn(num_samples, len(x_BD), size, generator=generator, device=x_BD.device)
            for size in (self.config.rank, x_BD.shape[1])
        )
        return self._samples(x_BD, *noise)
