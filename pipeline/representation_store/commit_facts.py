"""What readers need of commit records, read once and held small: of 20,000 units, whole records would be 30 MB."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pipeline.errors import DamagedError
from pipeline.places import Place
from pipeline.representation_store.records import read_commits


class Facts(NamedTuple):
    """Of one unit.

    Attributes:
        rows: that it has.
        stored: arrays of which it has an object; others hold nothing but fill.
    """

    rows: int
    stored: frozenset[str]


class CommitFacts:
    """Unit → facts. A record that is not known yet is read when it is asked for."""

    def __init__(self, folder: Place) -> None:
        self._folder = folder
        self._known: dict[int, Facts] = {}
        self._sets: dict[frozenset[str], frozenset[str]] = {}  # nearly all units have one and the same

    def learn(self, units: Sequence[int]) -> None:
        """Read the records of these units, many at a time.

        Raises:
            DamagedError: one of them is damaged.
            FileNotFoundError: one of them is not there.
        """
        for unit, found in read_commits(self._folder, [unit for unit in units if unit not in self._known]):
            if isinstance(found, DamagedError):
                raise found
            stored = frozenset(name for name, checksum in found.checksums.items() if checksum is not None)
            self._known[unit] = Facts(found.rows, self._sets.setdefault(stored, stored))

    def __getitem__(self, unit: int) -> Facts:
        """What is true of a unit; errors as of :meth:`learn`."""
        if unit not in self._known:
            self.learn([unit])
        return self._known[unit]

    def forget(self, unit: int) -> None:
        """Its record is another one now."""
        self._known.pop(unit, None)
