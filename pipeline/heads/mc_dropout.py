"""MC dropout: a classifier whose inputs drop out in training and in use; its samples stand for an ensemble.

*Dropout as a Bayesian approximation* (Gal and Ghahramani, ICML 2016) in the form of *URL* (Kirchhof 2024, thesis App.
C, 4.1 and B.11): dropout before a linear classifier stays active in use, and ten passes are averaged. The score is the
``entropy`` of the average class probabilities in nats, between 0 and log C; beside it ``jensen_shannon``, the
divergence of the passes in nats, between 0 and log S.

A pass is a set of coordinates that are dropped. The S sets are drawn once, from the head's seed, and are the same for
all rows: as samples of the classifier's weights, which is what dropout stands for, and so that a row that is asked
twice is answered the same. Training draws anew for every row and step.

Deviations: the backbone is frozen, so nothing drops out in it.

Cost: the classifier of C·(D + 1) weights; a score is S products with it, the loss one. Take it where an ensemble is too
large.

Shape suffixes: B rows, V views, D width, C classes, S passes, N = B·V.
"""

from __future__ import annotations

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import dropout

from pipeline.config import config
from pipeline.heads._classes import log_probability, pooled_entropies, require_classes
from pipeline.heads._mlp import linear
from pipeline.heads.base import Head, HeadOutput, LossOutput, Needs, RepresentationBatch, Summary
from pipeline.tuning.space import Space, Span


@config
class Config:
    """How much drops out, and how often it is looked at."""

    rate: Annotated[float, Field(gt=0, lt=1)] = 0.1  # share of coordinates that drop out; URL searches 0.05 to 0.25
    samples: Annotated[int, Field(ge=2)] = 10  # S, passes in use; URL: 10


class MCDropout(Head):
    """Uncertainty = entropy of the mean class probabilities of S passes; the embedding is the representation itself."""

    Config = Config
    keeps_representation = True
    mask_SD: Tensor

    @property
    def needs(self) -> Needs:
        """Labels; what drops out is drawn for the rows of a part together."""
        return Needs(labels=True)

    @property
    def search(self) -> Space:
        """URL, App. B."""
        return {"rate": Span(low=0.05, high=0.25, log=False)}

    def prepare(self, summary: Summary) -> None:
        """Make the classifier, and draw what drops out in use.

        Raises:
            UserError: the store has no classes.
        """
        classes, generator = require_classes("mc_dropout", summary), torch.Generator().manual_seed(self.seed)
        self.classifier = linear(summary.width, classes, generator)
        kept_SD = torch.rand(self.config.samples, summary.width, generator=generator) >= self.config.rate
        self.register_buffer("mask_SD", kept_SD.float() / (1 - self.config.rate))

    def loss(self, batch: RepresentationBatch) -> LossOutput:
        """−log p(label) of one pass, summed over labelled rows and views and divided by all."""
        assert batch.label_B is not None
        x_ND = dropout(batch.representation_BVD.flatten(0, 1).float(), self.config.rate, training=True)
        label_N = batch.label_B.repeat_interleave(batch.representation_BVD.shape[1])
        log_p_N = log_probability(x_ND, self.classifier.weight, self.classifier.bias, label_N)
        return LossOutput(total=-log_p_N.mean())

    def forward(self, representation_BD: Tensor) -> HeadOutput:
        """The representation untouched, and the two scores; coordinates drop out in training and in use alike."""
        x_SBD = representation_BD.float() * self.mask_SD[:, None]

        def logits_of(some: slice) -> Tensor:
            return x_SBD @ self.classifier.weight[some].T + self.classifier.bias[some]

        entropy_B, divergence_B = pooled_entropies(
            logits_of, classes=len(self.classifier.bias), members=len(x_SBD), rows=len(representation_BD)
        )
        return HeadOutput(
            embedding_BE=representation_BD,
            uncertainty={"entropy": entropy_B, "jensen_shannon": divergence_B},
            primary="entropy",
        )
