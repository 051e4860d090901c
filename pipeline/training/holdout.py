"""Rows that are kept out of training, chosen by their keys, and what a head is worth on them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from pipeline.errors import UserError
from pipeline.heads.base import Head, Needs
from pipeline.representation_store import RepresentationStore
from pipeline.representation_store.reader import BatchReader, Reading

VALIDATION_ROWS = 1 << 15  # at most so many are looked at, so that the time it takes is bounded


def held_out(keys: NDArray[np.bytes_], share: float) -> NDArray[np.bool_]:
    """(N,) which rows are held out: those whose key's hash falls into the first ``share`` of all hashes.

    The hash (a polynomial of the bytes modulo 2⁶⁴, then SplitMix64's finaliser) knows nothing of a row's place, so the
    same images are held out however they are packed.
    """
    bytes_NK = np.ascontiguousarray(keys).view(np.uint8).reshape(len(keys), -1).astype(np.uint64)
    powers = [pow(0x100000001B3, place + 1, 1 << 64) for place in range(bytes_NK.shape[1])]
    hash_N = (bytes_NK * np.array(powers, dtype=np.uint64)).sum(axis=1, dtype=np.uint64)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1)):
        hash_N = (hash_N ^ (hash_N >> np.uint64(shift))) * np.uint64(factor)
    return (hash_N >> np.uint64(11)).astype(np.float64) < share * (1 << 53)


def training_rows(store: RepresentationStore, share: float) -> NDArray[np.bool_] | None:
    """(rows,) which rows are trained on; None = all that take part.

    Keys are looked at unit by unit: they are many bytes a row. Where the store is limited, the shares are of its part.

    Raises:
        UserError: nothing is left to train on, or nothing is held out.
    """
    if share == 0:
        return None
    keep = np.ones(sum(store.counts().values()), dtype=bool)
    for start, key_R in store.column("key"):
        keep[start : start + len(key_R)] = ~held_out(key_R, share)
    part = keep if store.takes_part is None else keep[store.takes_part]
    if part.all() or not part.any():
        raise UserError(
            f"train_head.validation_share: {share} holds out {int((~part).sum())} of {len(part)} rows. "
            "Take a share that leaves rows on both sides."
        )
    return keep


@torch.no_grad()
def rank_correlation(head: Head, store: RepresentationStore, keep: NDArray[Any], device: torch.device) -> float:
    """Spearman's correlation of the head's uncertainty with the task loss on held-out rows (``~keep``)."""
    from scipy.stats import spearmanr  # here, because it takes a second or two to import

    reading = Reading(batch_size=4096, window=1 << 14, device=device)
    reader = BatchReader(store, Needs(task_loss=True), reading, keep=~keep)
    uncertainty, task_loss = [], []
    for batch in reader.once(VALIDATION_ROWS):
        assert batch.task_loss_BV is not None
        uncertainty.append(head(batch.representation_BVD[:, 0]).uncertainty_B.cpu())
        task_loss.append(batch.task_loss_BV[:, 0].cpu())
    return float(spearmanr(torch.cat(uncertainty).numpy(), torch.cat(task_loss).numpy()).statistic)
