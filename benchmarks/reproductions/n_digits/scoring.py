"""Verification, identification, and whether the uncertainty knows where they fail (HIB, Sec. 4.3 and 4.4).

- Verification: average precision of the match probability over pairs of test images, half of which match.
- Identification: the class that most of the five images have that match with the highest probability. The paper does
  not say among which: ``knn_accuracy`` compares a test image with all others of its own test set, which are corrupt
  where it is; ``knn_accuracy_clean_gallery`` with the clean ones, but for its own twin.
- Correlations: images (pairs: by the mean of both) are sorted by η into 20 bins of equal size; Kendall's τ between a
  bin's place and its accuracy (average precision), with the sign turned: positive is good.

Shape suffixes: I images, D features, E dimensions, M samples, P pairs, G images of a gallery, C neighbours.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import kendalltau
from sklearn.metrics import average_precision_score
from torch import Tensor

from benchmarks.reproductions.n_digits.images import Images
from benchmarks.reproductions.n_digits.model import Embedder
from pipeline.metrics.agreement import rank_correlation
from pipeline.metrics.undefined import Undefined

NEIGHBOURS, BINS = 5, 20
PAIRS, RANDOM_PAIRS = 10_000, 100_000
BLOCK = 500  # images whose pixels are held at a time
QUERIES = 10  # that are compared with all images at a time


def evaluate(embedder: Embedder, images: Images, clean: Images, queries: int, seed: int) -> dict[str, Any]:
    """All scores on one test set.

    Args:
        embedder: trained.
        images: the test set.
        clean: the same images without black squares.
        queries: how many of its images are identified.
        seed: of pairs and samples.
    """
    generator = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(seed)
        feature_ID = features(embedder, images)
        z_IME, eta_I = embedder.samples(feature_ID), embedder.self_mismatch(feature_ID)
        match_P2, random_P2 = balanced_pairs(images.label_I, generator), random_pairs(len(images), generator)
        probability_P, chance_P = (of_pairs(embedder, z_IME, pair_P2) for pair_P2 in (match_P2, random_P2))
        query_Q = torch.randperm(len(images), generator=generator)[:queries]
        right_Q = identify(embedder, z_IME, z_IME, images.label_I, query_Q)
        among_clean_Q = right_Q
        if images is not clean:
            clean_IME = embedder.samples(features(embedder, clean))
            among_clean_Q = identify(embedder, z_IME, clean_IME, images.label_I, query_Q)
    is_match_P, is_chance_P = (same(images.label_I, pair_P2) for pair_P2 in (match_P2, random_P2))
    scores: dict[str, Any] = {
        "verification_ap": average_precision(is_match_P, probability_P.numpy()),
        "knn_accuracy": float(right_Q.mean()),
        "knn_accuracy_clean_gallery": float(among_clean_Q.mean()),
    }
    if eta_I is not None:
        eta_P = eta_I[random_P2].mean(1).numpy()
        scores["ap_correlation"] = binned_correlation(
            eta_P, lambda part: average_precision(is_chance_P[part], chance_P.numpy()[part])
        )
        scores["knn_correlation"] = binned_correlation(eta_I[query_Q].numpy(), lambda part: right_Q[part].mean())
        error = rank_correlation(eta_I[query_Q].double().numpy(), 1.0 - right_Q)
        scores["error_rank_correlation"] = None if isinstance(error, Undefined) else error
        scores["mean_eta"] = float(eta_I.mean())
    return scores


def features(embedder: Embedder, images: Images) -> Tensor:
    """(I, D)."""
    parts = torch.arange(len(images)).split(BLOCK)
    return torch.cat([embedder.body(images.of(part_I).pixels()) for part_I in parts])


def balanced_pairs(label_I: Tensor, generator: torch.Generator) -> Tensor:
    """Pairs of different images, (P, 2), half of which match."""
    order = torch.argsort(label_I, stable=True)
    matching: list[Tensor] = []
    others: list[Tensor] = []
    half = PAIRS // 2
    while min(sum(len(part) for part in parts) for parts in (matching, others)) < half:
        pair_P2 = torch.randint(len(label_I), (PAIRS, 2), generator=generator)
        wanted_P = label_I[pair_P2[:, 0]]
        start_P, end_P = (torch.searchsorted(label_I[order], wanted_P, right=right) for right in (False, True))
        within_P = (torch.rand(PAIRS, generator=generator) * (end_P - start_P)).long()
        of_class_P2 = torch.stack([pair_P2[:, 0], order[start_P + within_P]], dim=1)
        matching.append(of_class_P2[of_class_P2[:, 0] != of_class_P2[:, 1]])
        others.append(pair_P2[wanted_P != label_I[pair_P2[:, 1]]])
    return torch.cat([torch.cat(matching)[:half], torch.cat(others)[:half]])


def random_pairs(images: int, generator: torch.Generator) -> Tensor:
    """Pairs of different images, (P, 2), few of which match."""
    pair_P2 = torch.randint(images, (RANDOM_PAIRS, 2), generator=generator)
    return pair_P2[pair_P2[:, 0] != pair_P2[:, 1]]


def same(label_I: Tensor, pair_P2: Tensor) -> NDArray[np.bool_]:
    """Whether pairs match."""
    return (label_I[pair_P2[:, 0]] == label_I[pair_P2[:, 1]]).numpy()


def average_precision(is_match_P: NDArray[np.bool_], probability_P: NDArray[np.floating]) -> float:
    """In [0, 1]; NaN where no pair matches."""
    return float(average_precision_score(is_match_P, probability_P)) if is_match_P.any() else math.nan


def of_pairs(embedder: Embedder, z_IME: Tensor, pair_P2: Tensor) -> Tensor:
    """The match probability of pairs (Eq. 5), (P,)."""
    parts = [embedder.pair_probability(z_IME[of[:, 0]], z_IME[of[:, 1]]) for of in pair_P2.split(10_000)]
    return torch.cat(parts)


def identify(
    embedder: Embedder, z_IME: Tensor, gallery_IME: Tensor, label_I: Tensor, query_Q: Tensor
) -> NDArray[np.float64]:
    """Whether the vote of the five most likely matches gives each query's class, (Q,), 0 or 1.

    Of classes with as many votes that of the likelier match wins. Image i of the gallery is image i itself or its
    twin, so query i is not compared with it.
    """
    right = []
    for part_Q in query_Q.split(QUERIES):
        probability_QI = embedder.match_probability(z_IME[part_Q], gallery_IME)
        probability_QI[torch.arange(len(part_Q)), part_Q] = -1
        near_QC = label_I[probability_QI.topk(NEIGHBOURS, dim=1).indices]
        votes_QC = (near_QC[:, :, None] == near_QC[:, None]).sum(-1)
        winner_Q = near_QC.gather(1, votes_QC.argmax(1, keepdim=True)).squeeze(1)
        right.append((winner_Q == label_I[part_Q]).double())
    return torch.cat(right).numpy()


def binned_correlation(
    eta_N: NDArray[np.floating], performance: Callable[[NDArray[np.int64]], float], bins: int = BINS
) -> float | None:
    """−Kendall's τ of the performance of ``bins`` equal parts, by rising uncertainty, with their place.

    Parts whose performance is undefined (no pair of theirs matches) are left out; None where nothing varies.
    """
    values = [float(performance(part)) for part in np.array_split(np.argsort(eta_N, kind="stable"), bins)]
    found = -kendalltau(np.arange(bins), values, nan_policy="omit").statistic
    return None if np.isnan(found) else float(found)
