"""The non-isotropic von Mises–Fisher distribution (nivMF): a direction μ and a concentration κ_i for each coordinate.

EL-nivMF (Kirchhof et al. 2022; thesis App. A), Eq. 4 and supp. B: x = K⁻¹y/‖K⁻¹y‖ for y of vMF(Kμ/‖Kμ‖, ‖Kμ‖), K =
diag(κ).

- ``density="exact"``: C_d(‖Kμ‖)·exp(‖Kμ‖ s(Kx, Kμ))·∏κ_i/‖Kx‖^d, with s the cosine: the density of that x. It
  integrates to 1, and is vMF(μ, c) where all κ_i = c.
- ``density="paper"``: Eq. 4 and 19, where D(K) = ∏κ_i/‖Kμ‖ stands for ∏κ_i/‖Kx‖^d. A heuristic, as supp. B says: it
  does not integrate to 1 (for equal κ_i = c it gives c^{d−1}; for κ = (8, 4, 2) and μ = e₁ 23.3), so it has no
  samples.

Shape suffixes: N points, C distributions; ``…`` is the batch shape and d the dimension.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from torch import Tensor
from torch.distributions import Distribution, constraints
from torch.distributions.constraints import Constraint
from torch.nn.functional import normalize

from pipeline.distributions.angle import Gradient
from pipeline.distributions.bessel import log_hyp0f1, log_normalizer_at_zero
from pipeline.distributions.constraints import Shape, unit_vector
from pipeline.distributions.von_mises_fisher import VonMisesFisher

Density = Literal["exact", "paper"]


class NonIsotropicVonMisesFisher(Distribution):
    """nivMF(μ, K).

    Args:
        loc: μ, (…, d), float, unit length.
        concentration: the diagonal of K, (…, d), float, > 0.
        density: ``exact`` or ``paper``.
        gradient: of samples, as in :class:`VonMisesFisher`.
        validate_args: as there.

    Raises:
        ValueError: shapes that do not go together, or (validated) values out of range.
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {
        "loc": unit_vector,
        "concentration": constraints.independent(constraints.positive, 1),
    }
    support = unit_vector
    has_rsample = True

    def __init__(
        self,
        loc: Tensor,
        concentration: Tensor,
        *,
        density: Density = "exact",
        gradient: Gradient = "implicit",
        validate_args: bool | None = None,
    ) -> None:
        if density not in ("exact", "paper"):
            raise ValueError(f"density: {density!r} is neither 'exact' nor 'paper'.")
        if loc.shape[-1:] != concentration.shape[-1:]:
            raise ValueError(
                "concentration: needs one number for each coordinate of loc, but the shapes are "
                f"{tuple(concentration.shape)} and {tuple(loc.shape)}."
            )
        dtype = torch.promote_types(torch.promote_types(loc.dtype, concentration.dtype), torch.float32)
        self.loc, self.concentration = torch.broadcast_tensors(loc.to(dtype), concentration.to(dtype))
        self.density: Density = density
        self.gradient: Gradient = gradient
        super().__init__(self.loc.shape[:-1], self.loc.shape[-1:], validate_args=validate_args)

    @property
    def dimension(self) -> int:
        """d, of the space that the sphere is in."""
        return int(self.event_shape[0])

    @property
    def stretched(self) -> VonMisesFisher:
        """vMF(Kμ/‖Kμ‖, ‖Kμ‖), of which this is the image under x ↦ K⁻¹x/‖K⁻¹x‖."""
        ellipsoid = self.concentration * self.loc
        return VonMisesFisher(
            normalize(ellipsoid, dim=-1),
            torch.linalg.vector_norm(ellipsoid, dim=-1),
            gradient=self.gradient,
            validate_args=False,
        )

    def expand(self, batch_shape: Shape, _instance: None = None) -> NonIsotropicVonMisesFisher:
        """The same distribution for a larger batch shape."""
        size = (*batch_shape, self.dimension)
        return NonIsotropicVonMisesFisher(
            self.loc.expand(size),
            self.concentration.expand(size),
            density=self.density,
            gradient=self.gradient,
            validate_args=False,
        )

    def log_prob(self, value: Tensor) -> Tensor:
        """log density (``paper``: log of its heuristic) at unit vectors (…, d), in nats, against the sphere's area."""
        if self._validate_args:
            self._validate_sample(value)
        stretched, image = self.stretched, self.concentration * value.to(self.loc.dtype)
        length = torch.linalg.vector_norm(image, dim=-1)
        base = stretched.log_prob(image / length[..., None]).double()
        return (base + self._log_volume(length, stretched.concentration)).to(self.loc.dtype)

    def pairwise_log_prob(self, value_Nd: Tensor) -> Tensor:
        """log density of every point under every distribution, (N, C), in two matrix products.

        With batch shape (C,). Outside of autocast, because ‖Kμ‖·cosine in bfloat16 would be off by units.
        """
        if len(self.batch_shape) != 1:
            raise ValueError(
                f"pairwise_log_prob: needs one batch axis, but the batch shape is {tuple(self.batch_shape)}."
            )
        with torch.autocast(value_Nd.device.type, enabled=False):
            value_Nd, square_Cd = value_Nd.to(self.loc.dtype), self.concentration.square()
            length_C = torch.linalg.vector_norm(self.concentration * self.loc, dim=-1)
            length_NC = torch.sqrt(value_Nd.square() @ square_Cd.T)
            along_NC = (value_Nd @ (square_Cd * self.loc).T) / length_NC  # ‖Kμ‖ s(Kx, Kμ)
        kappa_C = length_C.double()
        peak_C = log_normalizer_at_zero(self.dimension) - log_hyp0f1(kappa_C, self.dimension)
        return (peak_C + along_NC + self._log_volume(length_NC, length_C)).to(self.loc.dtype)

    def _log_volume(self, length: Tensor, peak: Tensor) -> Tensor:
        """The logarithm of ∏κ_i/‖Kx‖^d (``exact``) or of D(K) = ∏κ_i/‖Kμ‖ (``paper``), float64."""
        log_product = self.concentration.double().log().sum(-1)
        if self.density == "paper":
            return log_product - peak.double().log()
        return log_product - self.dimension * length.double().log()

    def rsample(self, sample_shape: Shape = (), generator: torch.Generator | None = None) -> Tensor:
        """Samples (*sample_shape, …, d) with gradients in μ and K.

        Raises:
            NotImplementedError: ``density="paper"``, which is not a probability.
        """
        if self.density == "paper":
            raise NotImplementedError(
                "density='paper' does not integrate to 1, so it has no samples. Take density='exact'."
            )
        return normalize(self.stretched.rsample(sample_shape, generator) / self.concentration, dim=-1)

    def sample(self, sample_shape: Shape = (), generator: torch.Generator | None = None) -> Tensor:
        """Samples (*sample_shape, …, d) without gradients."""
        with torch.no_grad():
            return self.rsample(sample_shape, generator)


def expected_likelihood_by_samples(log_density: Tensor) -> Tensor:
    """d_EL = −log ∫ ρζ ≈ −log mean_s ρ(z_s) for z_s of ζ (EL-nivMF, Eq. 5), over the first axis: (S, …) → (…).

    ``log_density`` is log ρ(z_s), as :meth:`NonIsotropicVonMisesFisher.log_prob` gives it.
    """
    return torch.logsumexp(-log_density.new_tensor(float(len(log_density))).log() + log_density, dim=0).neg()
