"""Retrieval, strangers and calibration (LAM, Sec. 4 and App. G.3), all by ``pipeline.metrics``.

An image is compared with all others of its set. ECE is that of samples: the class of the nearest sample that was drawn
with it, and how many of the samples agree on it.

Shape suffixes: N images, E dimensions of the embedding, S samples.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.reproductions.lam_fashion.images import Images
from benchmarks.reproductions.lam_fashion.model import Embedded, Network
from benchmarks.reproductions.lam_fashion.settings import Settings
from pipeline.metrics.calibration import consensus, reliability
from pipeline.metrics.nearest import nearest_neighbour
from pipeline.metrics.ood import detection
from pipeline.metrics.ranked import rank
from pipeline.metrics.selective import ausc
from pipeline.metrics.undefined import Score, Undefined
from pipeline.progress import Progress

BLOCK = 250  # images whose features are held at a time
BINS = 40  # of a histogram


def evaluate(
    network: Network, images: Images, strangers: Images | None, settings: Settings, progress: Progress
) -> dict[str, Any]:
    """``scores``, None where there is none; and ``shown``, for a plot.

    Args:
        network: trained.
        images: like those it learnt from.
        strangers: others; None: no detection.
        settings: how many samples, and for how many images they are compared.
        progress: told of each block.
    """
    total = len(images) + (len(strangers) if strangers else 0)
    bar = progress.bar("scoring", total, "image")
    samples, seed = settings.samples, settings.seed
    known = embed(network, images, samples, seed, bar)
    foreign = embed(network, strangers, samples, seed, bar) if strangers else None
    bar.close()
    label_N = images.label_I.numpy()
    ranked = rank(known.embedding_BE.numpy(), label_N, count=10, metric=network.metric)
    scores: dict[str, Any] = {f"map_{k}": value(ranked.mean_average_precision_at(k)) for k in (1, 5, 10)}
    scores |= dict.fromkeys(("auroc", "auprc", "ausc", "ece"))
    shown: dict[str, Any] = {}
    if known.uncertainty_B is not None and known.sample_SBE is not None:
        some = settings.calibrated
        certainty = known.uncertainty_B.double().numpy()
        scores["ausc"] = value(ausc(certainty, ranked.average_precision_at(1)))
        scores["ece"] = value(sampling_error(known.sample_SBE[:, :some].numpy(), label_N[:some], network))
        if foreign is not None and foreign.uncertainty_B is not None:
            other = foreign.uncertainty_B.double().numpy()
            found = detection(certainty, other)
            scores |= {"auroc": value(found.auroc), "auprc": value(found.auprc)}
            shown = histogram(certainty, other)
    return {"scores": scores, "shown": shown}


def embed(network: Network, images: Images, samples: int, seed: int, bar: Any) -> Embedded:
    """Of all images, block by block; the sampled weights are those of the seed for each block."""
    blocks = []
    with torch.inference_mode():
        for place_B in torch.arange(len(images)).split(BLOCK):
            blocks.append(network.embed(images.of(place_B).pixels(), samples, seed))
            bar.advance(len(place_B))
    sampled = [block.sample_SBE for block in blocks if block.sample_SBE is not None]
    unsure = [block.uncertainty_B for block in blocks if block.uncertainty_B is not None]
    return Embedded(
        embedding_BE=torch.cat([block.embedding_BE for block in blocks]),
        sample_SBE=torch.cat(sampled, dim=1) if sampled else None,
        uncertainty_B=torch.cat(unsure) if unsure else None,
    )


def sampling_error(sample_SNE: NDArray[np.float32], label_N: NDArray[np.int64], network: Network) -> Score:
    """ECE of Eq. 121."""
    near_SN = np.stack([nearest_neighbour(sample_NE, metric=network.metric) for sample_NE in sample_SNE])
    class_N, confidence_N = consensus(label_N[near_SN])
    return reliability(confidence_N, class_N == label_N).error


def histogram(known_N: NDArray[np.float64], other_N: NDArray[np.float64]) -> dict[str, Any]:
    """Of log₁₀ of the uncertainty, between the 0.1 % least and the 0.1 % greatest."""
    known_N, other_N = (np.log10(np.maximum(values, 1e-30)) for values in (known_N, other_N))
    both_N = np.concatenate([known_N, other_N])
    edges = np.histogram_bin_edges(np.quantile(both_N, [0.001, 0.999]), bins=BINS)
    counts = (np.histogram(np.clip(values, edges[0], edges[-1]), edges)[0].tolist() for values in (known_N, other_N))
    return {"edges": edges.round(4).tolist(), **dict(zip(("known", "strangers"), counts, strict=True))}


def value(score: Score) -> float | None:
    """A number, or none."""
    return None if isinstance(score, Undefined) else float(score)
