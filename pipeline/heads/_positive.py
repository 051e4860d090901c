"""A network whose outputs are positive: variances and the like, beside the concentrations of ``_spherical``.

Shape suffixes: B rows, D width of the representation, O outputs.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import softplus

from pipeline.config import config
from pipeline.heads._spherical import LARGEST, LEAST, UNIT, SpreadNetwork


@config
class SpreadConfig:
    """How the network of a spread looks."""

    hidden: Annotated[int, Field(ge=1)] = 512  # width of the hidden layers of the spread's network
    layers: Annotated[int, Field(ge=0)] = 2  # hidden layers of the spread's network
    reads: Literal["direction", "representation"] = "direction"  # what that network is given: e/‖e‖, or e


class Positive(SpreadNetwork):
    """initial · softplus(network)/log 2, in [1e-6, 1e6]; about ``initial`` at the start."""

    def __init__(self, width: int, config: Any, outputs: int, generator: torch.Generator, *, initial: float) -> None:
        super().__init__(width, config, outputs, generator)
        self.unit = initial / UNIT

    def forward(self, representation_BD: Tensor) -> Tensor:
        """(B, O), float32."""
        return (self.unit * softplus(super().forward(representation_BD))).clamp(LEAST, LARGEST)
