"""Which classes a search holds out: settings are chosen by what a head says of classes that it never saw."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from pipeline.errors import UserError
from pipeline.representation_store import RepresentationStore


def held_out_classes(names: Sequence[str], share: float, seed: int) -> frozenset[int]:
    """Indices of the share of all classes whose names have the smallest hashes; another seed gives other ones.

    Args:
        names: of all classes that have rows.
        share: of them, in (0, 1).
        seed: at least 0.

    Raises:
        UserError: fewer than two classes would be left on one side.
    """
    count = round(share * len(names))
    if min(count, len(names) - count) < 2:
        raise UserError(
            f"tune.validation_classes: {share} holds out {count} of {len(names)} classes; neighbours can be right and "
            "wrong only where there are two at least, and so in training. Take another share, or more classes."
        )
    return frozenset(sorted(range(len(names)), key=lambda place: _mark(names[place], seed))[:count])


def split(store: RepresentationStore, share: float, seed: int) -> tuple[RepresentationStore, NDArray[np.bool_]]:
    """The store of which batches hold rows of the other classes alone, and (rows,) which rows are of the held-out ones.

    Rows without a label, and those that do not take part in ``store``, are on neither side.

    Raises:
        UserError: as :func:`held_out_classes`.
    """
    label_N = np.concatenate([label_R for _, label_R in store.column("label")])
    there_N = label_N >= 0
    if store.takes_part is not None:
        there_N &= store.takes_part
    present = np.unique(label_N[there_N])
    chosen = held_out_classes([store.class_names[label] for label in present], share, seed)
    held_N = there_N & np.isin(label_N, present[sorted(chosen)])
    return store.limited(there_N & ~held_N), held_N


def _mark(name: str, seed: int) -> bytes:
    return blake2b(f"{seed} {name}".encode(), digest_size=8).digest()
