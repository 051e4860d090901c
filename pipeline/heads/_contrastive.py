"""Hessians of the contrastive loss in the weights of a last linear layer: what ``lam`` counts on.

*Bayesian metric learning* (Warburg et al., NeurIPS 2023), Sec. 3 and App. F. A pair's term is y/2·‖e_i − e_j‖² with e =
z/‖z‖ and z = Wφ. Its Gauss–Newton matrix in W is Σ over (a, b) of {i, j}² of y·M_ab ⊗ φ_aφ_bᵀ. M is

- ``euclidean`` (F.1): ±P_aP_b with P = (I − eeᵀ)/‖z‖, the normalisation being part of the network and linearised;
- ``arccos`` (F.2): the second derivatives of Eq. 105 to 107, the normalisation being part of the loss. Since z is
  linear in W this is the exact Hessian.

``fixed`` leaves the cross terms out (Eq. 8 and 111), ``positive`` the negative pairs (Eq. 7), ``full`` nothing (Eq. 9).

Shape suffixes: P pairs, E outputs, F inputs of the layer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

Distance = Literal["euclidean", "arccos"]
Hessian = Literal["fixed", "positive", "full"]


@dataclass(frozen=True, kw_only=True)
class Side:
    """One end of pairs.

    Attributes:
        e_PE: embeddings, of length 1.
        norm_P: ‖z‖.
        phi_PF: inputs of the layer.
    """

    e_PE: Tensor
    norm_P: Tensor
    phi_PF: Tensor


def side(z_PE: Tensor, phi_PF: Tensor) -> Side:
    """From outputs and inputs of the layer."""
    norm_P = torch.linalg.vector_norm(z_PE, dim=-1).clamp_min(1e-12)
    return Side(e_PE=z_PE / norm_P[:, None], norm_P=norm_P, phi_PF=phi_PF)


def kept(weight_P: Tensor, hessian: Hessian) -> Tensor:
    """The weights y of the pairs that count: of ``positive``, those above 0."""
    return weight_P.clamp_min(0) if hessian == "positive" else weight_P


def diagonal(one: Side, other: Side, weight_P: Tensor, *, distance: Distance, hessian: Hessian) -> Tensor:
    """Σ over pairs of the diagonal of the Gauss–Newton matrix, (E, F); may be negative.

    Args:
        one, other: of each pair.
        weight_P: y, positive for pairs of a class, negative for others within the margin, 0 for those without.
        distance, hessian: see above.
    """
    weight_P = kept(weight_P, hessian)
    cosine_P = (one.e_PE * other.e_PE).sum(-1)
    total = torch.zeros(one.e_PE.shape[1], one.phi_PF.shape[1], dtype=one.e_PE.dtype, device=one.e_PE.device)
    for near, far in ((one, other), (other, one)):
        own_PE = _own_diagonal(near, far, cosine_P, distance) * weight_P[:, None]
        total = total + own_PE.T @ near.phi_PF.square()
    if hessian != "fixed":
        both_PF = 2 * one.phi_PF * other.phi_PF
        squares_PE, product_PE = one.e_PE.square() + other.e_PE.square(), one.e_PE * other.e_PE
        sign_PE = -1 + squares_PE - cosine_P[:, None] * product_PE  # Eq. 106; −P_iP_j is the same
        scale_P = weight_P / (one.norm_P * other.norm_P)
        total = total + (sign_PE * scale_P[:, None]).T @ both_PF
    return total


def _own_diagonal(near: Side, far: Side, cosine_P: Tensor, distance: Distance) -> Tensor:
    """diag of M_aa, (P, E)."""
    if distance == "euclidean":
        value_PE = 1 - near.e_PE.square()
    else:
        cosine_P1 = cosine_P[:, None]
        value_PE = cosine_P1 + 2 * near.e_PE * far.e_PE - 3 * cosine_P1 * near.e_PE.square()
    return value_PE / near.norm_P.square()[:, None]


def factors(one: Side, other: Side, weight_P: Tensor, *, distance: Distance) -> tuple[Tensor, Tensor, Tensor]:
    """Of ``fixed``, where each term is one Kronecker product: Σ y·M (E, E), Σ y·φφᵀ (F, F), Σ y, over both ends."""
    cosine_P, inputs = (one.e_PE * other.e_PE).sum(-1), one.phi_PF.shape[1]
    identity_EE = torch.eye(one.e_PE.shape[1], dtype=one.e_PE.dtype, device=one.e_PE.device)
    left_EE, right_FF = torch.zeros_like(identity_EE), identity_EE.new_zeros(inputs, inputs)
    for near, far in ((one, other), (other, one)):
        scale_P = weight_P / near.norm_P.square()
        weighted_PE = near.e_PE * scale_P[:, None]
        if distance == "euclidean":
            left_EE = left_EE + scale_P.sum() * identity_EE - weighted_PE.T @ near.e_PE
        else:
            mixed_EE = weighted_PE.T @ far.e_PE
            left_EE = left_EE + (scale_P * cosine_P).sum() * identity_EE + mixed_EE + mixed_EE.T
            left_EE = left_EE - 3 * (weighted_PE * cosine_P[:, None]).T @ near.e_PE
        right_FF = right_FF + (near.phi_PF * weight_P[:, None]).T @ near.phi_PF
    return left_EE, right_FF, 2 * weight_P.sum()
