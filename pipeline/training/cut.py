"""How a global batch is cut into parts, which process computes which, and in what order their gradients are added.

A loss is a mean over groups of neighbouring rows (rows, pairs, or all rows of a part; :attr:`Needs.together`). So a
batch may be cut between groups: the gradient is the sum of those of the parts, weighted by their groups. Rows that the
sampling puts beside each other (:attr:`Needs.group`) stay beside each other, whatever the loss is. On a CPU the
parts and the order of additions are the same for one process and for up to :data:`PARTS` of them, so the weights are
too, bit for bit. On a GPU, where small parts are slow, there are no more parts than are needed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

from pipeline.errors import UserError
from pipeline.heads.base import Needs

PARTS = 4  # on a CPU; more let more processes agree, and make a step slower


@dataclass(frozen=True, kw_only=True)
class Cut:
    """The parts of a batch; each process has neighbouring ones, at least one.

    Attributes:
        bounds: row at which each part begins, and the end of the batch.
        weights: share of each part in the mean over the batch.
        owners: rank of the process that computes each part, ascending.
        exact: whether gradients are added in the order of :func:`additions`.
    """

    bounds: tuple[int, ...]
    weights: tuple[float, ...]
    owners: tuple[int, ...]
    exact: bool

    def mine(self, rank: int) -> list[int]:
        """The parts of a process."""
        return [part for part, owner in enumerate(self.owners) if owner == rank]

    def rows(self, rank: int) -> slice:
        """The rows of a batch that a process needs."""
        mine = self.mine(rank)
        return slice(self.bounds[mine[0]], self.bounds[mine[-1] + 1])


def cut_batch(batch_size: int, needs: Needs, *, accumulate: int, processes: int, exact: bool) -> Cut:
    """Cut a batch for so many processes.

    Args:
        batch_size: rows of a global batch.
        needs: of the head.
        accumulate: at least so many parts; a loss that compares all rows sees those of one of exactly so many.
        processes: that share the batch.
        exact: the same parts for 1 to :data:`PARTS` processes.

    Raises:
        UserError: the batch is smaller than a group, there are fewer parts than processes, or fewer groups than parts;
            says what to set.
    """
    unit = math.lcm(needs.together or 1, needs.group)  # rows that stay beside each other
    units = batch_size // unit
    if not units:
        raise UserError(
            f"train_head.batch_size: {batch_size} rows, but this head compares or learns from groups of {unit}. "
            f"Set at least {unit}."
        )
    if needs.together is None and units < accumulate:
        raise UserError(
            f"train_head.accumulate: {accumulate} parts of a batch of {batch_size} rows, but this head wants {unit} of "
            f"them beside each other. Take {units} parts at most, or a larger train_head.batch_size."
        )
    most = accumulate if needs.together is None else units  # parts
    wanted = (
        max(PARTS, accumulate, 1 << (processes - 1).bit_length()) if exact else -(-accumulate // processes) * processes
    )
    count = min(most, wanted)
    if count < processes:
        raise UserError(_too_few(batch_size, needs, accumulate, processes, units))
    bounds = (*(units * part // count * unit for part in range(count)), batch_size)  # the last has what is left over
    terms = [(stop - start) // (needs.together or 1) for start, stop in pairwise(bounds)]  # of the mean
    total = sum(terms)
    return Cut(
        bounds=bounds,
        weights=tuple(term / total for term in terms),
        owners=tuple(
            rank for rank in range(processes) for _ in range(count * rank // processes, count * (rank + 1) // processes)
        ),
        exact=exact,
    )


def _too_few(batch_size: int, needs: Needs, accumulate: int, processes: int, units: int) -> str:
    if needs.together is not None:
        return (
            f"train_head: {processes} processes are to share a batch of {batch_size} rows, in which this head has "
            f"{units} groups of {math.lcm(needs.together, needs.group)} rows that stay together. Set a larger "
            f"train_head.batch_size, or start at most {units} process{'es' * (units > 1)}."
        )
    advice = (
        f"Set train_head.accumulate={processes} (its loss then compares the rows of one part), or "
        if processes <= units
        else ""
    )
    return (
        f"train_head: {processes} processes are to share a batch, but this head's loss compares all rows of a part "
        f"with each other, and train_head.accumulate={accumulate} is the number of parts. {advice}"
        f"start at most {accumulate} process{'es' * (accumulate > 1)}."
    )


def additions(count: int) -> list[tuple[int, int, int]]:
    """The order in which ``count`` terms are added, neighbours first: a balanced tree.

    Returns:
        (left, right, last) for each addition: what has been added up at ``right`` is added to ``left``, which then
        holds the sum of terms ``left`` to ``last``.
    """
    order, width = [], 1
    while width < count:
        order += [(left, left + width, min(left + 2 * width, count) - 1) for left in range(0, count - width, 2 * width)]
        width *= 2
    return order
