"""Rows that a head wants beside each other, chosen by their labels.

Shape suffixes: K blocks, N places of a window, G groups of a window.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from pipeline.heads.base import Needs
from pipeline.representation_store.balanced import ClassBalance
from pipeline.representation_store.blocks import Blocks, Ints
from pipeline.representation_store.draws import Draws
from pipeline.representation_store.store import RepresentationStore
from pipeline.representation_store.triplets import Triplets


class Grouping(Protocol):
    """Cuts the stream of rows into groups of neighbours; :class:`~pipeline.representation_store.sampler.Sampler`."""

    @property
    def group(self) -> int:
        """Rows of a group."""

    @property
    def left_out(self) -> str:
        """Which rows no batch ever holds, in words; empty if there are none."""

    def places_K(self, blocks: Blocks) -> Ints:  # noqa: N802 (a shape suffix)
        """(K,) places of an epoch that each block brings."""

    def order(self, kept_N: Ints, shuffled_N: Ints, groups: int, draws: Draws) -> Ints:
        """The places of a window that are seen, those of ``groups`` groups first.

        Args:
            kept_N: the row that takes part at each place of the window.
            shuffled_N: its places in random order.
            groups: G.
            draws: for this window.

        Raises:
            UserError: the window has not the rows for it.
        """


def grouping_of(store: RepresentationStore, blocks: Blocks, needs: Needs) -> Grouping | None:
    """What a head's sampling asks for; None = rows come one by one. Labels are read if they are needed.

    Raises:
        UserError: there are no rows to group so.
    """
    if needs.sampling == "uniform":
        return None
    label = _labels(store, blocks)
    if needs.sampling == "class_balanced":
        return ClassBalance(label=label, per_class=needs.rows_per_class)
    return Triplets.of(label, negatives=needs.negatives, pool=needs.pool if needs.mining != "random" else 0)


def _labels(store: RepresentationStore, blocks: Blocks) -> NDArray[np.int32]:
    """Of the rows that take part, for which one small array is read whole."""
    label = np.empty(len(blocks.rows), dtype=np.int32)
    for start, label_R in store.column("label"):
        low, high = np.searchsorted(blocks.rows, (start, start + len(label_R)))
        label[low:high] = label_R[blocks.rows[low:high] - start]
    return label
