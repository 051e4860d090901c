"""Cross-entropy: a linear classifier on the representation, and how spread its class probabilities are.

*URL* (Kirchhof 2024, thesis ch. 4 and App. C), 4.1 and B.1: the supervised baseline. The score is the ``entropy`` of
the class probabilities in nats, between 0 and log C; beside it ``max_probability``: 1 less the largest, up to 1 − 1/C.

Deviations: there, the backbone learns with it. Here it is frozen, so the embedding is the representation itself.
Unlike ``classifier_entropy``, which takes the classifier that the store came with, this one is trained on the store's
labels and views, by the loop and for the steps that every head has.

Cost: C·(D + 1) weights, and one product with them. Take it as the baseline of heads that learn from labels.

Shape suffixes: B rows, V views, D width, C classes, N = B·V.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from pipeline.config import config
from pipeline.heads._classes import require_classes
from pipeline.heads._mlp import linear
from pipeline.heads.base import Head, HeadOutput, LossOutput, Needs, RepresentationBatch, Summary


@config
class Config:
    """Nothing to choose."""


class CrossEntropy(Head):
    """Uncertainty = entropy of softmax(Wx + b); the embedding is the representation itself, bit for bit."""

    Config = Config
    keeps_representation = True

    @property
    def needs(self) -> Needs:
        """Labels."""
        return Needs(labels=True, together=1)

    def prepare(self, summary: Summary) -> None:
        """Make the classifier.

        Raises:
            UserError: the store has no classes.
        """
        classes = require_classes("cross_entropy", summary)
        self.classifier = linear(summary.width, classes, torch.Generator().manual_seed(self.seed))

    def loss(self, batch: RepresentationBatch) -> LossOutput:
        """−log p(label), summed over labelled rows and divided by all rows, so that rows without a label weigh
        nothing."""
        assert batch.label_B is not None
        logits_NC = self.classifier(batch.representation_BVD.flatten(0, 1).float()).float()
        label_N = batch.label_B.repeat_interleave(batch.representation_BVD.shape[1])
        total = functional.cross_entropy(logits_NC, label_N, ignore_index=-1, reduction="sum") / len(label_N)
        right = (logits_NC.argmax(-1) == label_N).float().mean()
        return LossOutput(total=total, parts={"accuracy": right.detach()})

    def forward(self, representation_BD: Tensor) -> HeadOutput:
        """The representation untouched, and the two scores."""
        log_p_BC = functional.log_softmax(self.classifier(representation_BD.float()).float(), dim=-1)
        return HeadOutput(
            embedding_BE=representation_BD,
            uncertainty={
                "entropy": -(log_p_BC.exp() * log_p_BC).sum(-1),
                "max_probability": -torch.expm1(log_p_BC.amax(-1)),
            },
            primary="entropy",
        )
