"""Distributions of embeddings: von Mises–Fisher and its non-isotropic form on the sphere, Gaussians and their mixtures.

In the manner of ``torch.distributions``; formulas, measured errors and choices are in docs/design/09_distributions.md.
"""

from pipeline.distributions.angle import cosine_quadrature
from pipeline.distributions.bessel import bessel_ratio, bessel_ratio_derivative, log_hyp0f1, log_normalizer
from pipeline.distributions.gaussian import GaussianMixture, diagonal_gaussian, kl_to_standard_normal
from pipeline.distributions.non_isotropic import NonIsotropicVonMisesFisher, expected_likelihood_by_samples
from pipeline.distributions.vmf_distances import bhattacharyya, expected_likelihood, kullback_leibler
from pipeline.distributions.vmf_inference import (
    concentration_of_mean,
    credible_cosine,
    credible_cosine_share,
    fit,
)
from pipeline.distributions.von_mises_fisher import HypersphericalUniform, VonMisesFisher

__all__ = [
    "GaussianMixture",
    "HypersphericalUniform",
    "NonIsotropicVonMisesFisher",
    "VonMisesFisher",
    "bessel_ratio",
    "bessel_ratio_derivative",
    "bhattacharyya",
    "concentration_of_mean",
    "cosine_quadrature",
    "credible_cosine",
    "credible_cosine_share",
    "diagonal_gaussian",
    "expected_likelihood",
    "expected_likelihood_by_samples",
    "fit",
    "kl_to_standard_normal",
    "kullback_leibler",
    "log_hyp0f1",
    "log_normalizer",
]
