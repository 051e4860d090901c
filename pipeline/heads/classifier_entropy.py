"""Baseline: the entropy of the frozen classifier's class probabilities.

*Pretrained visual uncertainties* (Kirchhof 2024), App. B: needs no training, but carries the whole classifier along
and only exists where there is one (the backbone's own, or a probe). The score is in nats, between 0 and log C.

Cost: the classifier, C·(D + 1) numbers that travel with the head, and one product with it. The baseline to beat where
the classes are those of the classifier; take another where they are new.

Shape suffixes: B rows, C classes, D width.
"""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional

from pipeline.config import config
from pipeline.heads._classes import require_classifier
from pipeline.heads.base import Head, HeadOutput, Needs, Summary


@config
class Config:
    """Nothing to choose."""


class ClassifierEntropy(Head):
    """Uncertainty = entropy of softmax(embedding · Wᵀ + b); the embedding is the representation itself."""

    Config = Config
    keeps_representation = True
    weight_CD: Tensor
    bias_C: Tensor

    @property
    def needs(self) -> Needs:
        """No training; the frozen classifier."""
        return Needs(training=False, classifier=True)

    def prepare(self, summary: Summary) -> None:
        """Keep the classifier.

        Raises:
            UserError: there is no classifier over this representation.
        """
        classifier = require_classifier("classifier_entropy", summary)
        self.register_buffer("weight_CD", classifier.weight_CD.detach().float(), persistent=False)
        self.register_buffer("bias_C", classifier.bias_C.detach().float(), persistent=False)

    def forward(self, representation_BD: Tensor) -> HeadOutput:
        """The representation untouched, and the entropy of its class probabilities."""
        log_p_BC = functional.log_softmax(
            functional.linear(representation_BD.float(), self.weight_CD, self.bias_C), dim=-1
        )
        entropy_B = -(log_p_BC.exp() * log_p_BC).sum(dim=-1)
        return HeadOutput(embedding_BE=representation_BD, uncertainty={"entropy": entropy_B}, primary="entropy")
