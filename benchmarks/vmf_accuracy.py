"""How exact the von Mises–Fisher numerics are: the numbers of docs/design/09_distributions.md.

``python -m benchmarks.vmf_accuracy`` prints the worst relative error against mpmath at 60 digits over 18 dimensions and
κ = 10⁻³ … 10⁶ (absolute for the entropy), the sampler's acceptance, and the bias of the pathwise gradient, by samples.
"""

from __future__ import annotations

import mpmath
import torch

from pipeline.distributions import (
    VonMisesFisher,
    bessel_ratio,
    bessel_ratio_derivative,
    log_hyp0f1,
    log_normalizer,
)
from pipeline.distributions.vmf_sampling import draw_t, propose

DIMENSIONS = [2, 3, 4, 5, 8, 10, 16, 32, 64, 128, 192, 384, 512, 768, 1024, 1280, 2048, 4096]
KAPPAS = torch.tensor([10.0**power for power in range(-3, 7)], dtype=torch.float64)


def truth(d: int, kappa: float) -> list[float]:
    """log C, L, A, A′, A″ and the entropy by their definitions, at 60 digits."""
    with mpmath.workdps(60):
        k, nu = mpmath.mpf(kappa), mpmath.mpf(d) / 2 - 1
        bessel = mpmath.besseli(nu, k)
        ratio = mpmath.besseli(nu + 1, k) / bessel
        slope = 1 - ratio**2 - (d - 1) * ratio / k
        bend = -2 * ratio * slope - (d - 1) * (slope - ratio / k) / k
        log_c = nu * mpmath.log(k) - (nu + 1) * mpmath.log(2 * mpmath.pi) - mpmath.log(bessel)
        rise = mpmath.log(bessel) + mpmath.loggamma(nu + 1) - nu * mpmath.log(k / 2)
        return [float(value) for value in (log_c, rise, ratio, slope, bend, -log_c - k * ratio)]


def ours(d: int) -> torch.Tensor:
    """The same, (6, κ)."""
    kappa = KAPPAS.clone().requires_grad_()
    slope = bessel_ratio_derivative(kappa, d)
    (bend,) = torch.autograd.grad(slope.sum(), kappa)
    point = torch.eye(d, dtype=torch.float64)[0].expand(len(KAPPAS), d)
    entropy = VonMisesFisher(point, KAPPAS).entropy()
    rows = [log_normalizer(kappa, d), log_hyp0f1(kappa, d), bessel_ratio(kappa, d), slope, bend, entropy]
    return torch.stack([row.detach() for row in rows])


def main() -> None:
    """Print the worst of each."""
    worst: dict[str, tuple[float, str]] = {}
    for d in DIMENSIONS:
        exact = torch.tensor([truth(d, kappa) for kappa in KAPPAS.tolist()], dtype=torch.float64).T
        error = (ours(d) - exact).abs()
        error[:5] /= exact[:5].abs()
        for name, row in zip(["log C", "L", "A", "A′", "A″", "entropy (absolute)"], error, strict=True):
            place = int(row.argmax())
            worst[name] = max(worst.get(name, (0.0, "")), (row[place].item(), f"d={d}, κ={KAPPAS[place]:g}"))
    for name, (value, where) in worst.items():
        print(f"{name:20} {value:.1e}  at {where}")
    generator = torch.Generator().manual_seed(0)
    kappas = KAPPAS.repeat_interleave(20000)
    shares = {
        d: propose(kappas, d, generator)[1].view(len(KAPPAS), -1).double().mean(1).min().item() for d in DIMENSIONS
    }
    print("least acceptance    ", *(f"d={d}: {share:.3f}" for d, share in shares.items()))
    for d, kappa in ((2, 2.0), (3, 2.0), (5, 2.0), (10, 20.0), (64, 50.0), (192, 100.0), (1024, 100.0)):
        k = torch.full((100_000,), kappa, dtype=torch.float64)
        t = draw_t(k, d, generator)
        path = (t * (2 - t) / torch.sqrt(4 * k * k + (d - 1) ** 2)).mean() / bessel_ratio_derivative(k[:1], d)
        print(f"pathwise gradient at d={d}, κ={kappa:g}: off by {path.item() - 1:+.2%}")


if __name__ == "__main__":
    main()
