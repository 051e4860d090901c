"""How a global batch is cut into parts, which process computes which, and in what order their gradients are added.

A loss is a mean over groups of neighbouring rows (rows, pairs, or all rows of a part; :attr:`Needs.together`). So a
batch may be cut between groups: the gradient is the sum of those of the parts, weighted by their groups. On a CPU the
parts and the order of additions are the same for one process and for up to :data:`PARTS` of them, so the weights are
too, bit for bit. On a GPU, where small parts are slow, there are no more parts than are needed.
"""

from __future__ import annotations

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
        UserError: there are fewer parts than processes; says what to set.
    """
    rows = needs.together or batch_size // accumulate
    groups = max(batch_size // rows, 1)
    wanted = (
        max(PARTS, accumulate, 1 << (processes - 1).bit_length()) if exact else -(-accumulate // processes) * processes
    )
    count = min(groups, wanted)
    if count < processes:
        raise UserError(_too_few(batch_size, needs, accumulate, processes, groups))
    first = [groups * part // count for part in range(count + 1)]
    return Cut(
        bounds=(*(rows * group for group in first[:-1]), batch_size),  # rows without a whole group go with the last
        weights=tuple((stop - start) / groups for start, stop in pairwise(first)),
        owners=tuple(
            rank for rank in range(processes) for _ in range(count * rank // processes, count * (rank + 1) // processes)
        ),
        exact=exact,
    )


def _too_few(batch_size: int, needs: Needs, accumulate: int, processes: int, groups: int) -> str:
    if needs.together is not None:
        return (
            f"train_head: {processes} processes are to share a batch of {batch_size} rows, in which this head's loss "
            f"has {groups} groups of {needs.together}. Set a larger train_head.batch_size, or start at most {groups} "
            "processes."
        )
    fits = next((parts for parts in range(processes, batch_size // 2 + 1) if batch_size % (2 * parts) == 0), None)
    advice = (
        "" if fits is None else f"Set train_head.accumulate={fits} (its loss then compares the rows of one part), or "
    )
    return (
        f"train_head: {processes} processes are to share a batch, but this head's loss compares all rows of a part "
        f"with each other, and train_head.accumulate={accumulate} is the number of parts. {advice}"
        f"start at most {groups} process{'es' * (groups > 1)}."
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
