"""What the distributions here share: shapes, and the sphere as a ``torch.distributions`` constraint."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.distributions.constraints import Constraint

Shape = torch.Size | list[int] | tuple[int, ...]


class _UnitVector(Constraint):
    """Length one up to rounding (the root of the dtype's precision)."""

    event_dim = 1

    def check(self, value: Tensor) -> Tensor:
        length = torch.linalg.vector_norm(value.float() if value.dtype.itemsize < 4 else value, dim=-1)
        return (length - 1).abs() <= torch.finfo(value.dtype).eps ** 0.5


unit_vector = _UnitVector()
