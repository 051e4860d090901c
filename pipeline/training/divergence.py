"""A loss or a weight that is not finite any more ends training, with the step and the rows that made it so."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import Any

import numpy as np
from torch import Tensor

from pipeline.errors import UserError
from pipeline.representation_store import RepresentationStore
from pipeline.representation_store.reader import BatchReader
from pipeline.training.members import Member


class TrainingDivergedError(UserError):
    """A loss or a weight is no longer finite; the message says at which step and on which rows."""


def refuse_divergence(done: int, loss_SM: Tensor, members: Sequence[Member], reader: BatchReader) -> None:
    """Look at the losses of the last S steps and at the weights.

    Args:
        done: steps that are done.
        loss_SM: of the last S of them, for each member.
        members: as they are now.
        reader: knows which rows a batch had.

    Raises:
        TrainingDivergedError: says which step, seed and rows.
    """
    bad_SM = ~loss_SM.isfinite()
    for place, member in enumerate(members):
        if not all(bool(parameter.isfinite().all()) for parameter in member.head.parameters()):
            bad_SM[-1, place] |= not bad_SM[:, place].any()  # the last step's loss was fine, its update was not
    if not bad_SM.any():
        return
    first, place = bad_SM.nonzero()[0].tolist()
    step = done - len(loss_SM) + first
    with closing(reader.batches(step, step + 1)) as batches:
        rows = next(batches).row_B.cpu().numpy()
    if reader.mining == "head":  # its negatives were others: which ones, only the weights of that step would say
        rows = rows.reshape(-1, reader.sampler.group)[:, :2].reshape(-1)
    keys = ", ".join(f"{key} (row {row})" for row, key in zip(rows[:4], _keys(reader.store, rows[:4]), strict=True))
    raise TrainingDivergedError(
        f"train_head: training diverged at step {step} for {_name(members, place)}: loss "
        f"{float(loss_SM[first, place]):g}, or a weight is not finite. Its batch begins with {keys}. "
        "Lower train_head.base_lr or set train_head.precision=fp32; `submit verify stage=cache` checks the rows."
    )


def _name(members: Sequence[Member], place: int) -> str:
    seed, config = members[place].head.seed, members[place].config
    of_seed = [member for member in members if member.head.seed == seed]
    rates = f" with base_lr={config.base_lr:g} and weight_decay={config.weight_decay:g}"
    return f"seed {seed}{rates * (len(of_seed) > 1)}"


def _keys(store: RepresentationStore, rows: np.ndarray[Any, np.dtype[np.int64]]) -> list[str]:
    counts = store.counts()
    units, ends = list(counts), np.cumsum(list(counts.values()))
    keys = []
    for row in rows.tolist():
        place = int(np.searchsorted(ends, row, side="right"))
        at = row - int(ends[place]) + counts[units[place]]
        keys.append(store.read("key", units[place], start=at, stop=at + 1)[0].decode())
    return keys
