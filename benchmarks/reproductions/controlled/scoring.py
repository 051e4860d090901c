"""How near the predicted posteriors are to the true ones (thesis App. B, Sec. 5.1, Metrics).

Shape suffixes: N inputs, D dimension of the latents, Q pairs of inputs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from benchmarks.reproductions.controlled.encoder import Encoder
from benchmarks.reproductions.controlled.process import Process
from pipeline.metrics.agreement import rank_correlation
from pipeline.metrics.undefined import Score, Undefined

PAIRS = 100  # an input: 10⁶ of the 5·10⁷ of 10⁴ inputs; the ranks of all would take minutes, for the fourth digit
SHOWN = 1000  # points of a plot


def evaluate(process: Process, encoder: Encoder, inputs: int, seed: int, *, certainty: bool = True) -> dict[str, Any]:
    """RMSE and rank correlation of cosines between modes, and of κ̂ with κ.

    Where z is no vMF, κ is compared with the spread by rank only; where it is a point, or undefined, the value is null.

    Args:
        process: the truth.
        encoder: what is compared with it.
        inputs: how many.
        seed: of the inputs.
        certainty: whether κ̂ was learnt.
    """
    x_NX = process.inputs(inputs, torch.Generator().manual_seed(1_000_003 + seed))
    with torch.no_grad():
        posterior = encoder(x_NX)
        true_ND, kappa_N = process.mean(x_NX), process.kappa(x_NX)
    pair_2Q = torch.randint(inputs, (2, PAIRS * inputs), generator=torch.Generator().manual_seed(seed))
    pair_2Q = pair_2Q[:, pair_2Q[0] != pair_2Q[1]]
    true_Q, found_Q = (_cosines(mode_ND, pair_2Q) for mode_ND in (true_ND, posterior.loc))
    found_N = posterior.concentration.double().numpy()
    result: dict[str, Any] = {
        "location_rmse": _rmse(found_Q, true_Q),
        "location_rank": _defined(rank_correlation(found_Q, true_Q)),
        "median_kappa": float(np.median(found_N)) if certainty else None,
        "kappa_rmse": None,
        "kappa_rank": None,
        "shown": {"predicted": found_N[:SHOWN].round(3).tolist()},
    }
    if certainty and process.concentration is not None:
        true_N = (kappa_N if process.family == "vmf" else process.nearness(x_NX)).double().numpy()
        result["kappa_rmse"] = _rmse(found_N, true_N) if process.family == "vmf" else None
        result["kappa_rank"] = _defined(rank_correlation(found_N, true_N))
        result["shown"]["true"] = true_N[:SHOWN].round(3).tolist()
    return result


def _cosines(mode_ND: Tensor, pair_2Q: Tensor) -> NDArray[np.float64]:
    return (mode_ND[pair_2Q[0]] * mode_ND[pair_2Q[1]]).sum(-1).double().numpy()


def _rmse(found: NDArray[np.float64], wanted: NDArray[np.float64]) -> float:
    return float(np.sqrt(np.square(found - wanted).mean()))


def _defined(score: Score) -> float | None:
    return None if isinstance(score, Undefined) else score
