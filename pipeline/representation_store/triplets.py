"""Triplets within a window: an anchor, a positive of its class, and negatives of other classes.

In an epoch every row that can be one is an anchor once. Its positive and its negatives are drawn from the window; with
a pool, :mod:`pipeline.representation_store.mining` then puts the nearest of the pool in the place of the negatives.

Shape suffixes: N rows of a window, E of them eligible, C classes among these, G groups, A negatives of a group.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipeline.errors import UserError
from pipeline.representation_store.blocks import Blocks, Ints
from pipeline.representation_store.draws import Draws


@dataclass(frozen=True, kw_only=True)
class Triplets:
    """What is needed to draw triplets of the rows that take part; made by :meth:`of`.

    Attributes:
        label: of each row that takes part; −1 = it is in no triplet.
        negatives: of an anchor.
        pool: rows of a window, at most, among which hard negatives are looked for; 0 = negatives are only drawn.
        unlabelled, lone: rows that are in no triplet, because they have no label, or are the only one of their class.
    """

    label: NDArray[np.int32]
    negatives: int
    pool: int
    unlabelled: int
    lone: int

    @classmethod
    def of(cls, label: NDArray[np.int32], *, negatives: int, pool: int) -> Triplets:
        """Leave out the rows that have no positive.

        Args:
            label: of each row that takes part, −1 = unlabelled.
            negatives, pool: see above.

        Raises:
            UserError: fewer than two classes have two rows.
        """
        labels, class_N, size_C = np.unique(label, return_inverse=True, return_counts=True)
        lone_N = (label >= 0) & (size_C[class_N] == 1)
        unlabelled, lone = int((label < 0).sum()), int(lone_N.sum())
        classes = int(((labels >= 0) & (size_C > 1)).sum())
        if classes < 2:
            raise UserError(
                f"this head learns from triplets, two rows of a class and rows of another, but {classes} of the "
                f"classes of the {len(label):,} rows to train on {'has' if classes == 1 else 'have'} two rows "
                f"({lone:,} rows are the only one of their class, {unlabelled:,} have no label). "
                "Train on rows of more classes."
            )
        label = np.where(lone_N, -1, label).astype(np.int32)
        return cls(label=label, negatives=negatives, pool=pool, unlabelled=unlabelled, lone=lone)

    @property
    def group(self) -> int:
        """Rows of a group: anchor, positive, negatives."""
        return 2 + self.negatives

    @property
    def left_out(self) -> str:
        """Which rows are in no triplet."""
        counts = {"have no label": self.unlabelled, "are the only one of their class": self.lone}
        found = [f"{count:,} {what}" for what, count in counts.items() if count]
        return f"rows that are in no triplet: {', '.join(found)}" if found else ""

    def places_K(self, blocks: Blocks) -> Ints:  # noqa: N802 (a shape suffix)
        """(K,) places of an epoch that each block brings: a group for each of its rows that are anchors."""
        before = np.concatenate([[0], np.cumsum(self.label >= 0)])
        return (before[blocks.high_K] - before[blocks.low_K]) * self.group

    def order(self, kept_N: Ints, shuffled_N: Ints, groups: int, draws: Draws) -> Ints:
        """The places of a window that are seen: (G · (2 + A),) those of triplets, then those of its pool.

        Anchors take turns in a random order. One whose class has no other row in the window waits for another epoch,
        and an anchor that has had its turn takes the place. The positive is drawn from the other rows of the class, all
        alike, the negatives from the rows of other classes, all alike and different from each other.

        Args:
            kept_N, shuffled_N, groups, draws: as :class:`~pipeline.representation_store.grouping.Grouping` says.

        Raises:
            UserError: no class has two rows in the window, or there are too few of other classes.
        """
        if not groups:
            return shuffled_N[:0]
        eligible_E = shuffled_N[self.label[kept_N[shuffled_N]] >= 0]
        sorted_E = np.argsort(self.label[kept_N[eligible_E]], kind="stable")  # classes after each other
        at_E = np.empty(len(eligible_E), dtype=np.int64)
        at_E[sorted_E] = np.arange(len(eligible_E))
        label_E = self.label[kept_N[eligible_E[sorted_E]]]
        _, first_C, size_C = np.unique(label_E, return_index=True, return_counts=True)
        class_E = np.repeat(np.arange(len(size_C)), size_C)
        anchors = at_E[size_C[class_E[at_E]] > 1]
        self._check(anchors, len(eligible_E) - size_C[size_C > 1], len(kept_N))
        anchor_G = np.resize(anchors, groups)
        first_G, size_G = first_C[class_E[anchor_G]], size_C[class_E[anchor_G]]
        words = draws.words(groups * (1 + self.negatives)).reshape(groups, -1)
        turn_G = anchor_G - first_G + 1 + _below(words[:, 0], size_G - 1)
        other_GA = _different(words[:, 1:], len(eligible_E) - size_G)
        other_GA += size_G[:, None] * (other_GA >= first_G[:, None])  # the own class is stepped over
        group = np.concatenate([anchor_G[:, None], (first_G + turn_G % size_G)[:, None], other_GA], axis=1)
        return np.concatenate([eligible_E[sorted_E[group.reshape(-1)]], eligible_E[: self.pool]])

    def _check(self, anchors: Ints, others_C: Ints, rows: int) -> None:
        """Refuse a window without positives, or (``others_C``: rows of other classes) with too few negatives."""
        if not len(anchors) or others_C.min() < self.negatives:
            what = "two rows of a class, but no class has two"
            if len(anchors):
                what = f"{self.negatives} rows of other classes for each anchor, but one has {int(others_C.min())}"
            raise UserError(
                f"triplets want {what} among the {rows:,} rows that are mixed with each other. Set a larger "
                "train_head.window, or train on rows of more classes."
            )


def _below(words: NDArray[np.uint64], ends: Ints) -> Ints:
    """Random numbers in ``range(end)``; ends are so far below 2⁶⁴ that the remainder is even."""
    return (words % ends.astype(np.uint64)).astype(np.int64)


def _different(words_GA: NDArray[np.uint64], ends_G: Ints) -> Ints:
    """(G, A) different random numbers in ``range(end)`` of each group, all subsets alike (Floyd's algorithm)."""
    found_GA = np.empty(words_GA.shape, dtype=np.int64)
    count = words_GA.shape[1]
    for turn in range(count):
        last_G = ends_G - count + turn
        draw_G = _below(words_GA[:, turn], last_G + 1)
        taken_G = (found_GA[:, :turn] == draw_G[:, None]).any(axis=1)
        found_GA[:, turn] = np.where(taken_G, last_G, draw_G)
    return found_GA
