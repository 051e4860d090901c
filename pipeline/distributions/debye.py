"""The constants of Debye's uniform expansion of the Bessel function I_N, for one dimension of the sphere.

DLMF 10.41.9 and 10.41.10: U_0 = 1, U_{k+1} = ½p²(1−p²)U_k′ + ⅛∫₀ᵖ (1−5t²)U_k dt. The terms are made with fractions and
added up for the order N that a dimension needs, so that the sum over k costs one polynomial in p.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache

import torch

LEAST_ORDER = 16  # N₀: below it the truncated expansion is not good enough, and a recurrence leads down from there
TERMS = 12  # K; the error is of the order of U_{K+1}/N^{K+1}: relative 1e-14 in A_d at N = 16 (measured)
NEGLIGIBLE = 1e-17

Polynomial = tuple[Fraction, ...]  # the coefficients of 1, p, p², …


@dataclass(frozen=True, kw_only=True)
class Debye:
    """Of dimension d, with ν = d/2 − 1; polynomials are tuples of the coefficients of 1, p, p², …

    Attributes:
        order: N = ν + n, at least 16.
        recurrence: μ = ν+n, …, ν+1 (n numbers): the orders through which the recurrence goes down to ν.
        series: P(p) = Σ_{k≤K} U_k(p)/Nᵏ.
        at_one: P(1), the value at κ = 0.
        quotient: (P(p) − P(1)) / (p − 1).
        slope: S(p) = Σ_{1≤k≤K} (½U_{k−1} + pU′_{k−1})/Nᵏ.
        series_derivative, slope_derivative: P′ and S′.
    """

    order: float
    recurrence: tuple[float, ...]
    series: tuple[float, ...]
    at_one: float
    quotient: tuple[float, ...]
    slope: tuple[float, ...]
    series_derivative: tuple[float, ...]
    slope_derivative: tuple[float, ...]


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def debye(d: int) -> Debye:
    """The constants of dimension ``d`` ≥ 2."""
    return _debye(d)


@cache
def _debye(d: int) -> Debye:
    nu = Fraction(d, 2) - 1
    steps = max(0, -((nu - LEAST_ORDER) // 1))  # ⌈N₀ − ν⌉
    order = nu + steps
    terms = _terms(TERMS)
    series = _sum([_scaled(term, order**-k) for k, term in enumerate(terms)])
    slope = _sum(
        [
            _scaled(_sum([_scaled(term, Fraction(1, 2)), _shifted(_derivative(term), 1)]), order ** -(k + 1))
            for k, term in enumerate(terms[:-1])
        ]
    )
    return Debye(
        order=float(order),
        recurrence=tuple(float(nu + step) for step in range(int(steps), 0, -1)),
        series=_floats(series),
        at_one=float(sum(series)),
        quotient=_floats(_over_p_minus_one(series)),
        slope=_floats(slope),
        series_derivative=_floats(_derivative(series)),
        slope_derivative=_floats(_derivative(slope)),
    )


def _terms(count: int) -> list[Polynomial]:
    """U_0 … U_count."""
    terms: list[Polynomial] = [(Fraction(1),)]
    for _ in range(count):
        term, derivative = terms[-1], _derivative(terms[-1])
        half = Fraction(1, 2)
        first = _sum([_shifted(_scaled(derivative, half), 2), _shifted(_scaled(derivative, -half), 4)])
        integrand = _sum([term, _shifted(_scaled(term, Fraction(-5)), 2)])
        second = (Fraction(0), *(value / (8 * (power + 1)) for power, value in enumerate(integrand)))
        terms.append(_sum([first, second]))
    return terms


def _derivative(of: Polynomial) -> Polynomial:
    return tuple(power * value for power, value in enumerate(of))[1:]


def _scaled(of: Polynomial, factor: Fraction) -> Polynomial:
    return tuple(value * factor for value in of)


def _shifted(of: Polynomial, powers: int) -> Polynomial:
    return (*[Fraction(0)] * powers, *of)


def _sum(polynomials: Sequence[Sequence[Fraction]]) -> Polynomial:
    length = max(len(of) for of in polynomials)
    return tuple(sum((of[i] for of in polynomials if i < len(of)), Fraction(0)) for i in range(length))


def _over_p_minus_one(of: Polynomial) -> Polynomial:
    """(P(p) − P(1)) / (p − 1), by Horner's division."""
    quotient: list[Fraction] = []
    carry = Fraction(0)
    for value in reversed(of[1:]):
        carry += value
        quotient.append(carry)
    return tuple(reversed(quotient))


def _floats(of: Polynomial) -> tuple[float, ...]:
    """Without the highest powers where they cannot change a double (0 < p ≤ 1; the polynomials are about 1 or 1/N)."""
    last = max(power for power, value in enumerate(of) if power == 0 or abs(value) > NEGLIGIBLE)
    return tuple(float(value) for value in of[: last + 1])
