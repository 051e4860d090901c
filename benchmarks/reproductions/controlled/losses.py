"""The losses of the heads of this package, on pairs that were drawn as positives and on inputs drawn as negatives.

Shape suffixes: P pairs, N = 2P inputs, M negatives, S samples.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from benchmarks.reproductions.controlled.settings import Settings
from pipeline.distributions import VonMisesFisher
from pipeline.heads import elk, info_nce, mc_info_nce
from pipeline.heads._hib import match_loss
from pipeline.heads._spherical import cosines

Loss = Callable[[VonMisesFisher, VonMisesFisher], Tensor]  # of inputs (0, 1), (2, 3), … as pairs, and of negatives


def loss_of(settings: Settings) -> Loss:
    """The loss that ``settings.method`` names."""
    temperature = settings.inverse_temperature or settings.kappa_pos
    if settings.method == "info_nce":
        return points(temperature)
    if settings.method == "elk":
        of_elk = elk.Config(objective="contrastive", inverse_temperature=temperature)
        return lambda posterior, negatives: elk.contrastive_loss(posterior, of_elk, negatives)
    if settings.method == "hib":
        return lambda posterior, negatives: _hib(posterior, negatives, settings)
    of_mc = mc_info_nce.Config(inverse_temperature=temperature, samples=settings.samples)
    averaged = settings.share == "of_mean"
    if settings.crossed:
        return lambda posterior, negatives: _crossed(posterior, negatives, temperature, settings.samples, averaged)
    return lambda posterior, negatives: mc_info_nce.contrastive_loss(posterior, of_mc, negatives, averaged=averaged)


def points(temperature: float) -> Loss:
    """InfoNCE of the directions."""
    return lambda posterior, negatives: -info_nce.log_shares(posterior.loc, temperature, negatives.loc).mean()


def _crossed(
    posterior: VonMisesFisher, negatives: VonMisesFisher, temperature: float, samples: int, averaged: bool
) -> Tensor:
    """MCInfoNCE with every sample z₁ beside every z₂: −log of the mean of K² shares, a mean over the 2P inputs."""
    z_SP2E, negative_SME = posterior.rsample((samples,)).unflatten(1, (-1, 2)), negatives.rsample((samples,))
    positive_SSP = temperature * torch.einsum("ipe,jpe->ijp", z_SP2E[:, :, 0], z_SP2E[:, :, 1])
    as_one = math.log(negative_SME.shape[1]) if averaged else 0.0
    total = positive_SSP.new_zeros(())
    for row, of_row_SSP in enumerate((positive_SSP, positive_SSP.transpose(0, 1))):
        negative_SP = torch.logsumexp(temperature * cosines(z_SP2E[:, :, row], negative_SME), dim=-1) - as_one
        log_share_SSP = of_row_SSP - torch.logaddexp(of_row_SSP, negative_SP[:, None])
        total = total - (torch.logsumexp(log_share_SSP.flatten(0, 1), dim=0) - 2 * math.log(samples)).mean() / 2
    return total


def _hib(posterior: VonMisesFisher, negatives: VonMisesFisher, settings: Settings) -> Tensor:
    """App. B Eq. 54: given a and b, no divergence, and sample s of one is compared with sample s of the other.

    The first of each pair is the reference of the negatives.
    """
    z_SNE, other_SME = (each.rsample((settings.samples,)) for each in (posterior, negatives))
    match_SP = (z_SNE[:, 0::2] * z_SNE[:, 1::2]).sum(-1)
    mismatch_SQ = cosines(z_SNE[:, 0::2], other_SME).flatten(1)
    similarity_QS = torch.cat([match_SP, mismatch_SQ], dim=1).T
    is_match_Q = torch.arange(len(similarity_QS)) < match_SP.shape[1]
    return match_loss(settings.slope * similarity_QS + settings.offset, is_match_Q)
