"""Joint loss prediction: embedding, classifier and predicted loss are learnt together, and pull at one projection.

*URL* (Kirchhof 2024, thesis App. C), B.9 Eq. 8: cross-entropy of a classifier plus λ times the squared difference of
the predicted and the (detached) cross-entropy. The classifier and the network that predicts share a projection, which
both of their gradients change. It is the reference for what a StopGrad is worth: ``loss_prediction`` leaves the
embedding as it is, this one trades it for the prediction (thesis ch. 5, "gradient conflict").

The score is the predicted cross-entropy in nats, > 0, of the classes that were trained on.

Deviations: there, the backbone learns with it; here the projection does. URL also searches whether the prediction is
warmed up to 0.001 before; here it begins at about log 2.

Cost: projection, predictor and classifier, the last of E weights a class; logits are made some classes at a time. Take
it to compare with; the embedding is another one, so nearest neighbours have to be searched anew.

Shape suffixes: B rows, V views, D width, E width of the projection, C classes, N = B·V.
"""

from __future__ import annotations

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import softplus

from pipeline.config import config
from pipeline.heads._classes import log_probability, require_classes
from pipeline.heads._mlp import linear, mlp
from pipeline.heads._spherical import Projection, ProjectionConfig
from pipeline.heads.base import Head, HeadOutput, LossOutput, Needs, RepresentationBatch, Summary
from pipeline.tuning.space import Space, Span


@config
class Config(ProjectionConfig):
    """The projection, the network on it, and how much its loss weighs."""

    balance: Annotated[float, Field(ge=0)] = 0.5  # λ of Eq. 8; URL searches 0.01 to 0.99
    hidden: Annotated[int, Field(ge=1)] = 512  # width of the hidden layers of the network that predicts
    layers: Annotated[int, Field(ge=1)] = 2  # its hidden layers


class JointLossPrediction(Head):
    """Uncertainty = predicted cross-entropy; the embedding is the projection, as it is (its length is not 1)."""

    Config = Config

    @property
    def needs(self) -> Needs:
        """Labels: the loss that is predicted is that of the head's own classifier."""
        return Needs(labels=True, together=1)

    @property
    def search(self) -> Space:
        """URL, App. B."""
        return {"balance": Span(low=0.01, high=0.99, log=False)}

    def prepare(self, summary: Summary) -> None:
        """Make the projection, the classifier and the network.

        Raises:
            UserError: the store has no classes.
        """
        classes, generator = require_classes("joint_loss_prediction", summary), torch.Generator().manual_seed(self.seed)
        settings = self.config
        self.projection = Projection(summary.width, settings, generator)
        self.classifier = linear(settings.dimension, classes, generator)
        self.network = mlp(settings.dimension, settings.hidden, settings.layers, 1, generator)

    def _uncertainty(self, embedding_NE: Tensor) -> Tensor:
        return softplus(self.network(embedding_NE).squeeze(-1).float())

    def loss(self, batch: RepresentationBatch) -> LossOutput:
        """Eq. 8, summed over labelled rows and views and divided by all, so that rows without a label weigh nothing."""
        assert batch.label_B is not None
        label_N = batch.label_B.repeat_interleave(batch.representation_BVD.shape[1])
        embedding_NE = self.projection(batch.representation_BVD.flatten(0, 1))
        task_loss_N = -log_probability(embedding_NE, self.classifier.weight, self.classifier.bias, label_N)
        miss_N = (self._uncertainty(embedding_NE) - task_loss_N.detach()) * (label_N >= 0)
        cross_entropy, squared = task_loss_N.mean(), miss_N.square().mean()
        parts = {"cross_entropy": cross_entropy.detach(), "squared_error": squared.detach()}
        return LossOutput(total=cross_entropy + self.config.balance * squared, parts=parts)

    def forward(self, representation_BD: Tensor) -> HeadOutput:
        """The projection, and the cross-entropy that is predicted of it."""
        embedding_BE = self.projection(representation_BD)
        return HeadOutput(
            embedding_BE=embedding_BE,
            uncertainty={"predicted_loss": self._uncertainty(embedding_BE)},
            primary="predicted_loss",
        )
