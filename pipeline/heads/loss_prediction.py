"""Loss prediction with a StopGrad: a small network predicts how large the frozen classifier's loss is.

*Pretrained visual uncertainties* (Kirchhof 2024, thesis ch. 5 and App. D). ``objective: l2`` regresses the task loss
(Eq. 2); ``objective: ranking`` only orders rows by it (Eq. 3 and 4), so the score is free of the loss's scale. Network
and constants as in App. A: two layers of 512, LeakyReLU, softplus.

Deviations: Eq. 3 is printed with its sign reversed. What the text says, and what is computed here, is
``max(0, −1_L · (u₁ − u₂) + margin)``: the row with the larger task loss must get the larger uncertainty, by the margin.
Pairs whose loss differs by at most ``leeway`` (Eq. 5) count as 0 here; Eq. 5 would add the constant margin, which has
no gradient.

The score is positive. Under ``l2`` it is a task loss in nats; under ``ranking`` only its order means something.

Cost: D·512 + 512² weights, and one pass through them. Take it first: it is the smallest, it needs no label once the
task loss is in the store, and the embedding does not change.

Shape suffixes: B rows, V views of a row, D width, N = B·V, Q groups of G rows, P pairs.
"""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional

from pipeline.config import config
from pipeline.heads._mlp import mlp
from pipeline.heads.base import Head, HeadOutput, LossOutput, Needs, RepresentationBatch, Summary
from pipeline.tuning.space import Choice, Space, Span


@config
class Config:
    """How the network looks and what it is asked for."""

    objective: Literal["ranking", "l2"] = "ranking"
    margin: Annotated[float, Field(ge=0)] = 0.1  # m of Eq. 3
    leeway: Annotated[float, Field(ge=0)] = 0.0  # l of Eq. 5, in nats; 0: Eq. 4, where equal losses count as "else"
    group: Annotated[int, Field(ge=2, le=256)] = 2  # rows that ranking compares, each with each; the paper: pairs
    hidden: Annotated[int, Field(ge=1)] = 512  # width of the hidden layers
    layers: Annotated[int, Field(ge=1)] = 2  # hidden layers


class LossPrediction(Head):
    """Uncertainty = predicted task loss; the embedding is the representation itself, bit for bit."""

    Config = Config
    keeps_representation = True

    @property
    def needs(self) -> Needs:
        """The task loss of one view of each row; ``ranking`` compares those of a group of neighbours."""
        return Needs(task_loss=True, together=1 if self.config.objective == "l2" else self.config.group)

    @property
    def search(self) -> Space:
        """Margin and group of ranking; ``l2`` has nothing but the rate."""
        if self.config.objective == "l2":
            return {}
        return {"margin": Span(low=0.01, high=1.0), "group": Choice((2, 8, 32))}

    def prepare(self, summary: Summary) -> None:
        """Make the network for the store's width."""
        generator = torch.Generator().manual_seed(self.seed)
        self.network = mlp(summary.width, self.config.hidden, self.config.layers, 1, generator)

    def _uncertainty(self, representation_ND: Tensor) -> Tensor:
        score_N = self.network(representation_ND.float()).squeeze(-1)
        return functional.softplus(score_N.float())

    def forward(self, representation_BD: Tensor) -> HeadOutput:
        """The representation untouched, and its uncertainty."""
        return HeadOutput(
            embedding_BE=representation_BD,
            uncertainty={"predicted_loss": self._uncertainty(representation_BD)},
            primary="predicted_loss",
        )

    def loss(self, batch: RepresentationBatch) -> LossOutput:
        """Mean over the pairs of each group of neighbours (ranking; in the paper (0,1), (2,3), …), or over rows (l2).

        Any cut of a batch into whole groups gives the same mean, so the parts of 128 of the authors' runs need not be
        repeated. Rows that are left over at the end, fewer than a group, take no part in ``ranking``.
        """
        assert batch.task_loss_BV is not None
        uncertainty_N = self._uncertainty(batch.representation_BVD.flatten(0, 1))
        task_loss_N = batch.task_loss_BV.flatten()
        if self.config.objective == "l2":
            return LossOutput(total=functional.mse_loss(uncertainty_N, task_loss_N))
        rule = {"margin": self.config.margin, "leeway": self.config.leeway, "group": self.config.group}
        return ranking_loss(uncertainty_N, task_loss_N, **rule)


def ranking_loss(
    uncertainty_N: Tensor, task_loss_N: Tensor, *, margin: float, leeway: float = 0.0, group: int = 2
) -> LossOutput:
    """App. D Eq. 3 with the sign put right, Eq. 4 or 5; mean over the pairs of each of the ⌊N/G⌋ groups of neighbours.

    Returns:
        the loss, and ``in_order``: the share of pairs whose uncertainties are ordered as their losses.
    """
    first, second = torch.triu_indices(group, group, 1, device=uncertainty_N.device)
    groups = len(uncertainty_N) // group

    def differences(value_N: Tensor) -> Tensor:
        value_QG = value_N[: groups * group].view(groups, group)
        return (value_QG[:, first] - value_QG[:, second]).flatten()

    u_difference_P = differences(uncertainty_N)
    sign_P = _indicator(differences(task_loss_N), leeway)
    hinge_P = functional.relu(margin - sign_P * u_difference_P) * sign_P.abs()
    pairs = max(len(sign_P), 1)
    in_order = ((sign_P * u_difference_P) > 0).sum() / pairs
    return LossOutput(total=hinge_P.sum() / pairs, parts={"in_order": in_order.detach()})


def _indicator(difference_P: Tensor, leeway: float) -> Tensor:
    """1_L: +1 where the first row's loss is larger, −1 where it is smaller, and for equals −1 (Eq. 4) or 0 (Eq. 5)."""
    if leeway == 0:
        return torch.where(difference_P > 0, 1.0, -1.0)
    return (difference_P > leeway).float() - (difference_P < -leeway).float()
