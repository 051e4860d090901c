"""EL-nivMF: rows are von Mises–Fisher distributions, classes non-isotropic ones, compared by their expected likelihood.

*EL-nivMF* (Kirchhof et al. 2022; thesis ch. 2 and App. A). The loss is −log softmax over classes of −d/t (Eq. 2 and
6), with t learnt; ``anchor_weight`` adds ProxyAnchor on the same directions (Eq. 7, "PANC + EL-nivMF"; Kim et al.,
CVPR 2020, Eq. 4). The ``distance`` d of a row's ζ = vMF(μ, κ) and a class's ρ is one of Sec. 3.3 and supp. C to F:

- ``el_nivmf``: −log mean_s ρ(z_s), z_s of ζ (Eq. 5), with ρ non-isotropic; ``nivmf``: −log ρ(μ);
- ``el_vmf``, ``b_vmf``, ``kl_vmf`` (KL(ζ‖ρ)): closed forms, with ρ isotropic;
- ``cosine``: −s(μ_ρ, μ); ``l2``: ‖κ_ρμ_ρ − κμ‖².

The score is 1/κ > 0. ``nivmf`` and ``cosine`` compare points, so κ is not learnt with them: the score then is the
inverse length of the projection, the paper's stand-in for κ (3.2), and ``mean=projection`` is needed.

Deviations: κ comes from a network (URL, App. C, B.5), not from the norm. ``density=exact`` has the density that
integrates to 1 in place of Eq. 4's heuristic. Algorithm 1 divides by t inside of the mean over samples; here it is
outside, as in Eq. 5 and 6.

Cost: two vectors a class, C·2E numbers; a step compares S samples of each row with all classes in float64, which is the
dearest of all heads where there are many. Take it where classes are wide in different directions.

Shape suffixes: B rows, D width, E width of the embedding, C classes, S samples.
"""

from __future__ import annotations

import math
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, normalize
from torch.utils.checkpoint import checkpoint

from pipeline.config import config
from pipeline.distributions import (
    NonIsotropicVonMisesFisher,
    VonMisesFisher,
    bhattacharyya,
    expected_likelihood,
    expected_likelihood_by_samples,
    kullback_leibler,
)
from pipeline.heads._classes import require_classes
from pipeline.heads._spherical import LARGEST, LEAST, Posterior, PosteriorConfig, PosteriorHead, Projection, cosines
from pipeline.heads.base import HeadOutput, LossOutput, Needs, RepresentationBatch, Summary
from pipeline.tuning.space import Space, Span

AT_ONCE = 1 << 23  # densities (samples × rows × classes) that are held together: 64 MiB in float64
POINTS = ("nivmf", "cosine")  # distances from a point
CLOSED = {"el_vmf": expected_likelihood, "b_vmf": bhattacharyya, "kl_vmf": kullback_leibler}


@config
class Config(PosteriorConfig):
    """The posterior, the classes, and how they are compared."""

    distance: Literal["el_nivmf", "el_vmf", "b_vmf", "kl_vmf", "nivmf", "cosine", "l2"] = "el_nivmf"  # see above
    density: Literal["exact", "paper"] = "exact"  # of non-isotropic classes; paper: Eq. 4
    samples: Annotated[int, Field(ge=1)] = 16  # of each row, for el_nivmf; the paper: 5 to 20
    class_concentration: Annotated[float, Field(gt=0, le=LARGEST)] = 32.0  # of classes at the start, in all coordinates
    temperature: Annotated[float, Field(gt=0)] = 1.0  # t at the start
    anchor_weight: Annotated[float, Field(ge=0)] = 0.0  # ω of Eq. 7, of ProxyAnchor; 0: without it
    anchor_scale: Annotated[float, Field(gt=0)] = 32.0  # α of ProxyAnchor
    anchor_margin: Annotated[float, Field(ge=0)] = 0.1  # δ of ProxyAnchor

    def __post_init__(self) -> None:
        if self.distance in POINTS and self.mean == "frozen":
            raise ValueError(
                f"distance={self.distance} compares points and learns no κ, so with head.mean=frozen there is no score "
                "to learn: set head.mean=projection, or another distance"
            )


class NivMF(PosteriorHead):
    """Uncertainty = 1/κ of the posterior vMF(μ, κ) (of distances between points: 1/‖projection‖)."""

    Config = Config

    @property
    def points(self) -> bool:
        """Whether the distance compares points."""
        return self.config.distance in POINTS

    @property
    def needs(self) -> Needs:
        """Labels. ProxyAnchor compares rows of a batch, and samples are drawn for all of them."""
        alone = self.config.distance != "el_nivmf" and not self.config.anchor_weight
        return Needs(labels=True, together=1 if alone else None)

    @property
    def search(self) -> Space:
        """How sharply rows and classes are compared; with ProxyAnchor its weight, which is what the paper tunes."""
        found = {"class_concentration": Span(low=8.0, high=256.0), "temperature": Span(low=0.1, high=2.0)}
        return {**found, **({"anchor_weight": Span(low=0.01, high=1.0)} if self.config.anchor_weight else {})}

    def prepare(self, summary: Summary) -> None:
        """Make the networks and the classes.

        Raises:
            UserError: the store has no classes.
        """
        classes = require_classes("nivmf", summary)
        generator, settings = torch.Generator().manual_seed(self.seed), self.config
        if self.points:
            self.projection = Projection(summary.width, settings, generator)
            shape = (classes, settings.dimension)
        else:
            self.posterior = Posterior(summary.width, settings, generator)
            shape = (classes, self.posterior.dimension)
        self.class_CE = nn.Parameter(torch.randn(shape, generator=generator) / math.sqrt(shape[1]))
        coordinates = {"cosine": 0, "nivmf": shape[1], "el_nivmf": shape[1]}.get(settings.distance, 1)
        if coordinates:
            start = torch.full((shape[0], coordinates), math.log(settings.class_concentration))
            self.log_concentration_CK = nn.Parameter(start)
        self.log_temperature = nn.Parameter(torch.tensor(settings.temperature).log())

    def loss(self, batch: RepresentationBatch) -> LossOutput:
        """Mean over rows, of which those without a label count as 0; ProxyAnchor over classes, weighted by ω."""
        assert batch.label_B is not None
        x_BD, class_CE = batch.representation_BVD[:, 0], normalize(self.class_CE, dim=-1)
        if self.points:
            loc_BE, parts = normalize(self.projection(x_BD), dim=-1), {}
            distance_BC = self._from_points(loc_BE, class_CE)
        else:
            posterior = self.posterior(x_BD)
            loc_BE, parts = posterior.loc, {"concentration": posterior.concentration.mean().detach()}
            distance_BC = self._from_distributions(posterior, class_CE)
        logits_BC = -distance_BC / self.log_temperature.exp()
        total = cross_entropy(logits_BC, batch.label_B, ignore_index=-1, reduction="sum") / len(batch.label_B)
        parts["softmax"] = total.detach()
        if self.config.anchor_weight:
            scale, margin = self.config.anchor_scale, self.config.anchor_margin
            anchor = proxy_anchor(cosines(loc_BE, class_CE), batch.label_B, scale=scale, margin=margin)
            total, parts["anchor"] = total + self.config.anchor_weight * anchor, anchor.detach()
        return LossOutput(total=total, parts=parts)

    def _concentrations(self) -> Tensor:
        return self.log_concentration_CK.exp().clamp(LEAST, LARGEST)

    def _from_points(self, loc_BE: Tensor, class_CE: Tensor) -> Tensor:
        if self.config.distance == "cosine":
            return -cosines(loc_BE, class_CE)
        return self._expected_likelihood(loc_BE[None], class_CE, self._concentrations())

    def _from_distributions(self, posterior: VonMisesFisher, class_CE: Tensor) -> Tensor:
        kind = self.config.distance
        if kind == "el_nivmf":
            return self._expected_likelihood(
                posterior.rsample((self.config.samples,)), class_CE, self._concentrations()
            )
        kappa_B1, kappa_C = posterior.concentration[:, None], self._concentrations()[:, 0]
        cosine_BC = cosines(posterior.loc, class_CE)
        if kind == "l2":
            return kappa_B1.square() + kappa_C.square() - 2 * kappa_B1 * kappa_C * cosine_BC
        return CLOSED[kind](kappa_B1, kappa_C, cosine_BC, posterior.dimension)

    def _expected_likelihood(self, z_SBE: Tensor, class_CE: Tensor, kappa_CE: Tensor) -> Tensor:
        """d_EL of samples and classes, some classes at a time; what is between is made again for the gradient."""
        samples, rows, _ = z_SBE.shape

        def of_some(z_SBE: Tensor, loc_CE: Tensor, kappa_CE: Tensor) -> Tensor:
            classes = NonIsotropicVonMisesFisher(loc_CE, kappa_CE, density=self.config.density, validate_args=False)
            log_density_SBC = classes.pairwise_log_prob(z_SBE.flatten(0, 1)).view(samples, rows, len(loc_CE))
            return expected_likelihood_by_samples(log_density_SBC)

        count = max(1, AT_ONCE // (samples * rows))
        if count >= len(class_CE):
            return of_some(z_SBE, class_CE, kappa_CE)
        some = zip(class_CE.split(count), kappa_CE.split(count), strict=True)
        return torch.cat(
            [checkpoint(of_some, z_SBE, *one, use_reentrant=False, preserve_rng_state=False) for one in some], dim=1
        )

    def forward(self, representation_BD: Tensor) -> HeadOutput:
        """The representation (frozen) or μ, and 1/κ or 1/‖projection‖."""
        if not self.points:
            return super().forward(representation_BD)
        projected_BE = self.projection(representation_BD)
        norm_B = torch.linalg.vector_norm(projected_BE, dim=-1).clamp_min(torch.finfo(torch.float32).tiny)
        return HeadOutput(
            embedding_BE=normalize(projected_BE, dim=-1),
            uncertainty={"inverse_norm": norm_B.reciprocal()},
            primary="inverse_norm",
        )

    def sample(self, representation_BD: Tensor, num_samples: int, generator: torch.Generator) -> Tensor:
        """Of vMF(μ, κ), unit vectors.

        Raises:
            NotImplementedError: the distance compares points.
        """
        if self.points:
            raise NotImplementedError(f"distance={self.config.distance} has no posterior to sample from")
        return super().sample(representation_BD, num_samples, generator)


def proxy_anchor(cosine_BC: Tensor, label_B: Tensor, *, scale: float, margin: float) -> Tensor:
    """ProxyAnchor: classes of the batch pull their rows, all classes push the others.

    (1/|P⁺|) Σ_{p∈P⁺} log(1 + Σ_{x of p} e^{−α(s−δ)}) + (1/|P|) Σ_p log(1 + Σ_{x not of p} e^{α(s+δ)}); rows with
    label −1 take no part.
    """
    known_B1 = (label_B >= 0)[:, None]
    own_BC = (label_B[:, None] == torch.arange(cosine_BC.shape[1], device=label_B.device)) & known_B1
    other_BC = ~own_BC & known_B1
    pull_C, push_C = (
        torch.nn.functional.softplus(torch.logsumexp(exponent_BC.masked_fill(~mask_BC, -1e30), dim=0))
        for exponent_BC, mask_BC in (
            (-scale * (cosine_BC - margin), own_BC),
            (scale * (cosine_BC + margin), other_BC),
        )
    )
    return pull_C.sum() / own_BC.any(0).sum().clamp_min(1) + push_C.mean()
