"""The von Mises–Fisher distribution on the sphere S^{d−1}, a direction μ and a concentration κ, and the uniform one.

Density C_d(κ)·exp(κμᵀx) (Mardia and Jupp 2000, 9.3.4; thesis App. B Eq. 1). Normalizers, moments and the cosine of
samples are computed in float64 and given back in the dtype of the parameters (float32 for shorter ones).

Shape suffixes: none; ``…`` is the batch shape and d the dimension.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor
from torch.distributions import Distribution, constraints, register_kl
from torch.distributions.constraints import Constraint

from pipeline.distributions.angle import Gradient, attach_gradient
from pipeline.distributions.bessel import (
    bessel_ratio,
    bessel_ratio_derivative,
    log_hyp0f1,
    log_normalizer,
    log_normalizer_at_zero,
)
from pipeline.distributions.constraints import Shape, unit_vector
from pipeline.distributions.vmf_sampling import around, draw_t


class VonMisesFisher(Distribution):
    """vMF(μ, κ).

    Args:
        loc: μ, (…, d) with d ≥ 2, float, unit length.
        concentration: κ, (…), float, finite and ≥ 0; 0 is the uniform distribution. Accurate up to 10⁶.
        gradient: of samples in κ, ``implicit`` (exact) or ``pathwise`` (cheaper, biased in low dimensions); see
            :func:`pipeline.distributions.angle.attach_gradient`.
        validate_args: look at the values; it has to be False under ``torch.compile(fullgraph=True)`` and ``vmap``.

    Raises:
        ValueError: shapes that do not go together, d < 2, or (validated) values out of range.
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {
        "loc": unit_vector,
        "concentration": constraints.nonnegative,
    }
    support = unit_vector
    has_rsample = True

    def __init__(
        self,
        loc: Tensor,
        concentration: Tensor,
        *,
        gradient: Gradient = "implicit",
        validate_args: bool | None = None,
    ) -> None:
        if loc.ndim < 1 or loc.shape[-1] < 2:
            raise ValueError(f"loc: needs a last axis of at least 2 coordinates, but its shape is {tuple(loc.shape)}.")
        if gradient not in ("implicit", "pathwise"):
            raise ValueError(f"gradient: {gradient!r} is neither 'implicit' nor 'pathwise'.")
        try:
            batch_shape = torch.broadcast_shapes(loc.shape[:-1], concentration.shape)
        except RuntimeError:
            raise ValueError(
                f"concentration: its shape {tuple(concentration.shape)} does not go with that of loc without its last "
                f"axis, {tuple(loc.shape[:-1])}."
            ) from None
        dtype = torch.promote_types(torch.promote_types(loc.dtype, concentration.dtype), torch.float32)
        self.loc = loc.to(dtype).expand(*batch_shape, loc.shape[-1])
        self.concentration = concentration.to(dtype).expand(batch_shape)
        self.gradient = gradient
        super().__init__(batch_shape, loc.shape[-1:], validate_args=validate_args)

    @property
    def dimension(self) -> int:
        """d, of the space that the sphere is in."""
        return int(self.event_shape[0])

    def expand(self, batch_shape: Shape, _instance: None = None) -> VonMisesFisher:
        """The same distribution for a larger batch shape."""
        size = torch.Size(batch_shape)
        return VonMisesFisher(
            self.loc.expand(*size, self.dimension),
            self.concentration.expand(size),
            gradient=self.gradient,
            validate_args=False,
        )

    @property
    def mean(self) -> Tensor:
        """A_d(κ)·μ, (…, d); shorter than 1."""
        return bessel_ratio(self.concentration, self.dimension).to(self.loc.dtype)[..., None] * self.loc

    @property
    def mode(self) -> Tensor:
        """μ (of κ = 0 too, where every point is one)."""
        return self.loc

    @property
    def variance(self) -> Tensor:
        """Of each coordinate, (…, d): across μ it is A/κ = (1 − A² − A′)/(d−1), along it A′."""
        ratio = bessel_ratio(self.concentration, self.dimension)
        along = bessel_ratio_derivative(self.concentration, self.dimension)
        across = (1 - ratio * ratio - along) / (self.dimension - 1)
        return (across[..., None] + (along - across)[..., None] * self.loc.square()).to(self.loc.dtype)

    def log_prob(self, value: Tensor) -> Tensor:
        """log density at unit vectors (…, d), in nats and against the sphere's area.

        μᵀx is computed as 1 − ‖x − μ‖²/2, which for κ = 10⁶ is 10⁶ times more exact in float32 than the product is.
        """
        if self._validate_args:
            self._validate_sample(value)
        distance = (value.to(self.loc.dtype) - self.loc).square().sum(-1, dtype=torch.float64)
        kappa = self.concentration.double()
        peak = log_normalizer_at_zero(self.dimension) + (kappa - log_hyp0f1(kappa, self.dimension))
        return (peak - kappa * distance / 2).to(self.loc.dtype)

    def entropy(self) -> Tensor:
        """−log C_d(κ) − κA_d(κ) in nats, (…); the log of the sphere's area at κ = 0, and negative where κ is large."""
        kappa = self.concentration
        value = -log_normalizer(kappa, self.dimension) - kappa.double() * bessel_ratio(kappa, self.dimension)
        return value.to(self.loc.dtype)

    def rsample(self, sample_shape: Shape = (), generator: torch.Generator | None = None) -> Tensor:
        """Samples (*sample_shape, …, d) with gradients in μ and κ; NaN where κ is NaN or infinite."""
        kappa = self.concentration.double().expand(*sample_shape, *self.batch_shape)
        t = draw_t(kappa, self.dimension, generator)
        return around(self.loc, attach_gradient(t, kappa, self.dimension, self.gradient), generator)

    def sample(self, sample_shape: Shape = (), generator: torch.Generator | None = None) -> Tensor:
        """Samples (*sample_shape, …, d) without gradients."""
        with torch.no_grad():
            return self.rsample(sample_shape, generator)


class HypersphericalUniform(Distribution):
    """The uniform distribution on S^{d−1}: vMF with κ = 0, without a direction."""

    arg_constraints: ClassVar[dict[str, Constraint]] = {}
    support = unit_vector
    has_rsample = True

    def __init__(
        self,
        dimension: int,
        batch_shape: Shape = (),
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
        validate_args: bool | None = None,
    ) -> None:
        if dimension < 2:
            raise ValueError(f"dimension: {dimension} is below 2.")
        self.dtype, self.device = dtype, torch.device(device)
        super().__init__(torch.Size(batch_shape), torch.Size([dimension]), validate_args=validate_args)

    def log_prob(self, value: Tensor) -> Tensor:
        """−log of the sphere's area, whatever the unit vector."""
        if self._validate_args:
            self._validate_sample(value)
        shape = torch.broadcast_shapes(value.shape[:-1], self.batch_shape)
        return value.new_full(shape, log_normalizer_at_zero(self.event_shape[0]))

    def entropy(self) -> Tensor:
        """log of the sphere's area."""
        value = -log_normalizer_at_zero(self.event_shape[0])
        return torch.full(self.batch_shape, value, dtype=self.dtype, device=self.device)

    def rsample(self, sample_shape: Shape = (), generator: torch.Generator | None = None) -> Tensor:
        """Samples (*sample_shape, …, d)."""
        shape = (*sample_shape, *self.batch_shape, *self.event_shape)
        noise = torch.randn(shape, dtype=self.dtype, device=self.device, generator=generator)
        return torch.nn.functional.normalize(noise, dim=-1)


@register_kl(VonMisesFisher, VonMisesFisher)  # type: ignore[untyped-decorator]
def _kl(p: VonMisesFisher, q: VonMisesFisher) -> Tensor:
    """log C(κ_p) − log C(κ_q) + A(κ_p)(κ_p − κ_q μ_pᵀμ_q); Eq. 39 of EL-nivMF (supp. E) forgets the A."""
    _same_sphere(p, q)
    d, kappa_p, kappa_q = p.dimension, p.concentration.double(), q.concentration.double()
    distance = (p.loc - q.loc).square().sum(-1, dtype=torch.float64)
    value = log_hyp0f1(kappa_q, d) - log_hyp0f1(kappa_p, d)
    value = value + bessel_ratio(kappa_p, d) * (kappa_p - kappa_q + kappa_q * distance / 2)
    return value.to(torch.promote_types(p.loc.dtype, q.loc.dtype))


@register_kl(VonMisesFisher, HypersphericalUniform)  # type: ignore[untyped-decorator]
def _kl_to_uniform(p: VonMisesFisher, q: HypersphericalUniform) -> Tensor:
    """κA − L."""
    _same_sphere(p, q)
    kappa = p.concentration.double()
    value = kappa * bessel_ratio(kappa, p.dimension) - log_hyp0f1(kappa, p.dimension)
    return value.expand(torch.broadcast_shapes(p.batch_shape, q.batch_shape)).to(p.loc.dtype)


@register_kl(HypersphericalUniform, VonMisesFisher)  # type: ignore[untyped-decorator]
def _kl_of_uniform(p: HypersphericalUniform, q: VonMisesFisher) -> Tensor:
    """L."""
    _same_sphere(p, q)
    value = log_hyp0f1(q.concentration, q.dimension)
    return value.expand(torch.broadcast_shapes(p.batch_shape, q.batch_shape)).to(q.loc.dtype)


def _same_sphere(p: Distribution, q: Distribution) -> None:
    if p.event_shape != q.event_shape:
        raise ValueError(f"The distributions live in {p.event_shape[0]} and {q.event_shape[0]} dimensions.")
