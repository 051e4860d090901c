"""How many samples a run may set aside before something is taken to be wrong with it rather than with them.

Two things stop a unit, and nothing else does:

- *It is rotten itself*: more than half of its samples are bad (or more than the share, where that is larger), and at
  least :data:`FEW_OF_A_UNIT`. Its labels may be those of another list, say. It fails alone.
- *The run is*: of all samples in the commits so far and in this unit, more than the share are bad. While fewer than
  :data:`GRACE` samples are seen, the share is taken of the first :data:`GRACE` (or of the whole run, if it is smaller),
  because dirt comes in lumps; and :data:`FEW_OF_A_RUN` are always allowed, unless the share is 0.

So one bad sample in a small tar stops nothing, and a run of fewer than :data:`GRACE` samples fails if and only if more
than the share of all of it is bad, in whatever order its units are done. A unit that was stopped by the run's budget
is tried again by the same command, when more is known or the share is raised.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from pipeline.errors import DamagedError, UserError
from pipeline.faults import Quarantined
from pipeline.images.grouping import APART
from pipeline.places import Place
from pipeline.representation_store.records import committed_units, read_commits

GRACE = 100_000  # samples: about a dozen tars
FEW_OF_A_RUN = 10
FEW_OF_A_UNIT = 3
SHOWN = 3  # samples in a message
TAR = "<name>.tar"  # in advice


def _share(value: Any) -> Any:
    """``1%`` → 0.01; anything else is left as it is."""
    if isinstance(value, str) and value.strip().endswith("%"):
        try:
            return float(value.strip().removesuffix("%")) / 100
        except ValueError:
            return value
    return value


#: A number from 0 to 1, which may be written in per cent: ``0.01`` or ``1%``.
Share = Annotated[float, BeforeValidator(_share), Field(ge=0, le=1)]


class Budget:
    """The failure budget of one run.

    Args:
        commits: folder of the commit records.
        share: of samples that may be bad; 1 = any number, 0 = none.
        samples: of the whole run, as far as that is known.
    """

    def __init__(self, commits: Place, share: float, samples: int | None = None) -> None:
        self.commits = commits
        self.share = share
        self.samples = samples
        self._known: dict[int, tuple[int, int]] = {}  # unit → samples, bad ones

    def check(self, unit: int, name: str, quarantined: Sequence[Quarantined], samples: int) -> None:
        """Whether ``unit`` may be committed.

        Args:
            unit: its index; a commit of it that stands already is not counted.
            name: of its tar, for the message.
            quarantined: its bad samples.
            samples: how many it has, bad ones included.

        Raises:
            UserError: too many are bad, in the unit or in the run; says how many and the first reasons.
        """
        bad = len(quarantined)
        if bad >= FEW_OF_A_UNIT and bad > max(self.share, 0.5) * samples:
            raise UserError(
                f"{name}: {bad:,} of its {samples:,} samples cannot be used, so something is wrong with all of it. "
                f"{self._advice(quarantined)}"
            )
        if not bad:
            return
        seen, seen_bad = self._seen(unit)
        seen, seen_bad = seen + samples, seen_bad + bad
        allowed = self.allowed(seen)
        if seen_bad > allowed:
            raise UserError(
                f"{name}: {bad:,} of its {samples:,} samples cannot be used; with those of the units done before "
                f"{seen_bad:,} of {seen:,}, more than the {allowed:,} that max_quarantined={self.share:.4g} allows "
                f"the run so far. {self._advice(quarantined)}"
            )

    def allowed(self, seen: int) -> int:
        """How many of ``seen`` samples may be bad."""
        base = max(seen, min(GRACE, self.samples or 0))
        return max(FEW_OF_A_RUN if self.share else 0, math.ceil(self.share * base))

    def _seen(self, without: int) -> tuple[int, int]:
        """Samples and bad samples of the units that are committed now; each record is read once."""
        units = set(committed_units(self.commits))
        for unit, commit in read_commits(self.commits, units - self._known.keys()):
            if isinstance(commit, DamagedError):
                raise commit
            self._known[unit] = commit.rows + len(commit.quarantined), len(commit.quarantined)
        counts = [self._known[unit] for unit in units if unit != without]
        return sum(samples for samples, _ in counts), sum(bad for _, bad in counts)

    def _advice(self, quarantined: Sequence[Quarantined]) -> str:
        first = "; ".join(f"{item.key}: {item.reason}" for item in quarantined[:SHOWN])
        if 2 * [item.reason for item in quarantined].count(APART) > len(quarantined):
            return (
                f"First: {first}. That is what `tar cf {TAR} .` makes, which takes members in the order of the folder. "
                f"Unpack this tar and pack it by name: tar --sort=name -cf {TAR} -C <folder> . (or, where tar has no "
                f"--sort: find . -type f | LC_ALL=C sort | tar -cf {TAR} -T -)"
            )
        return f"First: {first}. Mend the images, or allow more with cache.max_quarantined=…"
