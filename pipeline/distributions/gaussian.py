"""Gaussians with a diagonal covariance, and mixtures of them: Hedged instance embeddings (Oh et al. 2019), 2.2.

The single Gaussian is torch's own, ``Independent(Normal)``, for which torch knows samples with gradients, entropy and
the exact KL divergence. The mixture is torch's ``MixtureSameFamily`` with what it lacks: samples with gradients,
stratified over the components.

Shape suffixes: S samples, K components; ``…`` is the batch shape and d the dimension.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.distributions import Categorical, Independent, MixtureSameFamily, Normal

from pipeline.distributions.constraints import Shape


def diagonal_gaussian(loc: Tensor, scale: Tensor, *, validate_args: bool | None = None) -> Independent[Normal]:
    """N(μ, diag σ²) of ``loc`` (…, d) and the standard deviations ``scale`` > 0, (…, d)."""
    return Independent(Normal(loc, scale, validate_args=validate_args), 1, validate_args=validate_args)


def kl_to_standard_normal(gaussian: Independent[Normal]) -> Tensor:
    """KL(N(μ, diag σ²) ‖ N(0, I)) = ½Σ(μ² + σ² − 1) − Σ log σ, exact, (…) in nats."""
    base = gaussian.base_dist
    assert isinstance(base, Normal)
    return (base.loc.square() + base.scale.square() - 1).sum(-1) / 2 - base.scale.log().sum(-1)


class GaussianMixture(MixtureSameFamily):
    """Σ_k π_k N(μ_k, diag σ_k²).

    Args:
        loc: μ, (…, K, d).
        scale: σ > 0, (…, K, d), standard deviations.
        logits: (…, K), the weights before a softmax; None: all 1/K, as in Oh et al., whose sum has no weights.
        validate_args: as in torch.
    """

    def __init__(
        self, loc: Tensor, scale: Tensor, logits: Tensor | None = None, *, validate_args: bool | None = None
    ) -> None:
        if loc.ndim < 2:
            raise ValueError(f"loc: needs the axes component and coordinate, but its shape is {tuple(loc.shape)}.")
        logits = torch.zeros_like(loc[..., 0]) if logits is None else logits
        super().__init__(
            Categorical(logits=logits, validate_args=validate_args),
            diagonal_gaussian(loc, scale, validate_args=validate_args),
            validate_args=validate_args,
        )

    @property
    def _normal(self) -> Normal:
        independent = self.component_distribution
        assert isinstance(independent, Independent)
        assert isinstance(independent.base_dist, Normal)
        return independent.base_dist

    def expand(self, batch_shape: Shape, _instance: None = None) -> GaussianMixture:
        """The same mixture for a larger batch shape."""
        base, logits = self._normal, self.mixture_distribution.logits
        return GaussianMixture(
            base.loc.expand(*batch_shape, *base.loc.shape[-2:]),
            base.scale.expand(*batch_shape, *base.loc.shape[-2:]),
            logits.expand(*batch_shape, logits.shape[-1]),
            validate_args=False,
        )

    def stratified_rsample(self, samples: int, generator: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
        """The same number of samples of each component, with gradients in μ and σ, and their weights.

        Args:
            samples: S, of one component.
            generator: of the noise.

        Returns:
            z (S·K, …, d) and its weights (S·K, …), which add up to 1 over the first axis: Σ_i w_i f(z_i) estimates
            E f(z) without bias and, unlike draws of the whole mixture, with gradients in the weights too.
        """
        base = self._normal
        noise = torch.randn(
            (samples, *base.loc.shape), dtype=base.loc.dtype, device=base.loc.device, generator=generator
        )
        z = (base.loc + base.scale * noise).movedim(-2, 1).flatten(0, 1)
        weight = self.mixture_distribution.probs.movedim(-1, 0) / samples
        return z, weight.expand(samples, *weight.shape).flatten(0, 1)

    def kl_to_standard_normal(self, samples: int, generator: torch.Generator | None = None) -> Tensor:
        """KL(mixture ‖ N(0, I)) in nats, (…), by ``samples`` stratified samples of each component; no closed form.

        An estimate can be below 0. With one component the exact value is :func:`kl_to_standard_normal`.
        """
        z, weight = self.stratified_rsample(samples, generator)
        prior = -(z.square().sum(-1) + z.shape[-1] * math.log(2 * math.pi)) / 2
        return (weight * (self.log_prob(z) - prior)).sum(0)
