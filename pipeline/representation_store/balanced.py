"""Class-balanced order within a window: groups of rows of one class, every class equally often.

A loss that compares rows of a class with others (contrastive, proxies, pairs) learns little from a uniform batch of
many classes, in which hardly two rows share one. HIB samples batches "from specific class labels" for that reason (Oh
et al., ICLR 2019, Sec. 3.2), and deep metric learning takes a few rows of each class of a batch.

Shape suffixes: N rows of a window, C classes that take part in it, G groups, K rows of a group.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipeline.errors import UserError
from pipeline.representation_store.blocks import Blocks, Ints
from pipeline.representation_store.draws import Draws


@dataclass(frozen=True, kw_only=True)
class ClassBalance:
    """What is needed to balance the rows that take part.

    Attributes:
        label: of each row that takes part, -1 = unlabelled.
        per_class: K, rows of a group.
    """

    label: NDArray[np.int32]
    per_class: int

    @property
    def group(self) -> int:
        """Rows of a group."""
        return self.per_class

    @property
    def left_out(self) -> str:
        """Which rows are in no batch; rows of classes that are too small for a window are in others."""
        unlabelled = int((self.label < 0).sum())
        return f"rows that are in no class-balanced batch: {unlabelled:,} have no label" if unlabelled else ""

    def places_K(self, blocks: Blocks) -> Ints:  # noqa: N802 (a shape suffix)
        """(K,) places of an epoch that each block brings: as many as it has rows."""
        return blocks.size_K

    def order(self, kept_N: Ints, shuffled_N: Ints, groups: int, draws: Draws) -> Ints:
        """The places of a window that are seen, (G · K,): groups of K neighbours that are of one class.

        Classes go by turns: each has one group before any has another, in an order of its own each time. A class takes
        its rows by turns too. So groups a class, and times a row within its class, differ by at most one in a window; a
        row of a small class comes more often than one of a large class. Rows of a group are different ones. Rows
        without a label, and classes with fewer than K rows in the window, are left out of it.

        Args:
            kept_N, shuffled_N, groups, draws: as :class:`~pipeline.representation_store.grouping.Grouping` says.

        Raises:
            UserError: fewer than two classes have K rows in the window.
        """
        label_N = self.label[kept_N[shuffled_N]]
        grouped_N = np.argsort(label_N, kind="stable")
        labels, first_C, size_C = np.unique(label_N[grouped_N], return_index=True, return_counts=True)
        some_C = (labels >= 0) & (size_C >= self.per_class)
        first_C, size_C = first_C[some_C], size_C[some_C]
        if len(size_C) < 2:
            raise UserError(
                f"class-balanced batches hold {self.per_class} rows of each of several classes, but {len(size_C)} of "
                f"the {int((labels >= 0).sum()):,} classes among {len(kept_N):,} rows that are mixed with each other "
                "have so many. Set a larger train_head.window, or train on rows of more classes."
            )
        class_G = draws.permutations(-(-groups // len(size_C)), len(size_C)).reshape(-1)[:groups]
        turn_G = np.arange(groups) // len(size_C)
        place_GK = (turn_G[:, None] * self.per_class + np.arange(self.per_class)) % size_C[class_G][:, None]
        return shuffled_N[grouped_N[(first_C[class_G][:, None] + place_GK).reshape(-1)]]
