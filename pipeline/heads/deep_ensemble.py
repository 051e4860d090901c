"""Deep ensemble: several linear classifiers on the representation, and how far they are from one mind.

*Deep ensembles* (Lakshminarayanan et al., NeurIPS 2017) in the form of *URL* (Kirchhof 2024, thesis App. C, 4.1 and
B.10): ten classifier heads share the backbone, their class probabilities are averaged, and −log of the average at the
label is the loss. The score is the ``entropy`` of the average in nats, between 0 and log C; beside it
``jensen_shannon``, the divergence of the members' distributions in nats, between 0 and log M: what they disagree on.

Deviations: the backbone is frozen, so the members differ by their initial weights alone. ``objective=separate`` gives
each member a loss of its own, as Lakshminarayanan et al. have it; a linear classifier's is convex, so they then come
close to each other in a long training.

Cost: M classifiers of C·(D + 1) weights; a loss or a score is M products with them. Take it as the reference of
methods that imitate an ensemble by one network.

Shape suffixes: B rows, V views, D width, C classes, M members, N = B·V.
"""

from __future__ import annotations

import math
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from pipeline.config import config
from pipeline.heads._classes import log_probability, pooled_entropies, require_classes
from pipeline.heads._mlp import linear
from pipeline.heads.base import Head, HeadOutput, LossOutput, Needs, RepresentationBatch, Summary


@config
class Config:
    """How many, and what they learn from."""

    members: Annotated[int, Field(ge=2)] = 10  # M; URL: 10
    objective: Literal["average", "separate"] = "average"  # −log of the mean probability (URL), or the mean of −log


class DeepEnsemble(Head):
    """Uncertainty = entropy of the members' mean class probabilities; the embedding is the representation itself."""

    Config = Config
    keeps_representation = True

    @property
    def needs(self) -> Needs:
        """Labels."""
        return Needs(labels=True, together=1)

    def prepare(self, summary: Summary) -> None:
        """Make the classifiers, each with initial weights of its own.

        Raises:
            UserError: the store has no classes.
        """
        classes, generator = require_classes("deep_ensemble", summary), torch.Generator().manual_seed(self.seed)
        made = (linear(summary.width, classes, generator) for _ in range(self.config.members))
        self.classifiers = nn.ModuleList(made)

    def _layers(self) -> list[tuple[Tensor, Tensor]]:
        return [(layer.weight, layer.bias) for layer in self.classifiers if isinstance(layer, nn.Linear)]

    def loss(self, batch: RepresentationBatch) -> LossOutput:
        """Summed over labelled rows and views and divided by all, so that rows without a label weigh nothing."""
        assert batch.label_B is not None
        x_ND = batch.representation_BVD.flatten(0, 1).float()
        label_N = batch.label_B.repeat_interleave(batch.representation_BVD.shape[1])
        log_p_MN = torch.stack([log_probability(x_ND, *layer, label_N) for layer in self._layers()])
        single = -log_p_MN.mean()
        average = (math.log(len(log_p_MN)) - torch.logsumexp(log_p_MN, dim=0)).mean()
        total = average if self.config.objective == "average" else single
        return LossOutput(total=total, parts={"single_loss": single.detach()})

    def forward(self, representation_BD: Tensor) -> HeadOutput:
        """The representation untouched, and the two scores."""
        x_BD = representation_BD.float()

        def logits_of(some: slice) -> Tensor:
            return torch.stack([x_BD @ weight[some].T + bias[some] for weight, bias in self._layers()])

        entropy_B, divergence_B = pooled_entropies(
            logits_of, classes=len(self._layers()[0][1]), members=self.config.members, rows=len(x_BD)
        )
        return HeadOutput(
            embedding_BE=representation_BD,
            uncertainty={"entropy": entropy_B, "jensen_shannon": divergence_B},
            primary="entropy",
        )
