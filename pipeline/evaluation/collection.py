"""One evaluated collection as analyses see it: its numbers, scores, rows, neighbours, other views and images.

Scores come from what was written when it was scored. All else is read or computed when it is first asked for, and once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from pipeline.annotations import Annotations
from pipeline.evaluation.contenders import Contender, Scored
from pipeline.evaluation.rows import ChosenRows, Rows
from pipeline.evaluation.scoring import HeadScores, SeedScores, run_head
from pipeline.evaluation.table import read_scored
from pipeline.heads.base import Head
from pipeline.metrics.aggregate import plain_numbers
from pipeline.metrics.ranked import Ranked, rank
from pipeline.metrics.undefined import Score
from pipeline.places import Place
from pipeline.report.thumbnails import read_thumbnails

CENTER = "center"
NEIGHBOURS = 20  # of a row, which analyses look at


@dataclass(frozen=True, kw_only=True)
class Sources:
    """Where a collection comes from.

    Attributes:
        table: of its rows.
        chosen: opens its store.
        changed: opens the store of a part of it with more views than ``center``; None: its own store is all there is.
        annotations: what is known of it beyond labels; None: nothing is.
        contenders: makes the heads ready to run.
        tars: its images, the index of a tar being that of a unit; None: its images are not shown.
        device: where heads and neighbours are computed.
    """

    table: Place
    chosen: Callable[[], ChosenRows]
    contenders: Callable[[], Sequence[Contender]]
    tars: Callable[[], Sequence[Place]] | None
    device: torch.device | str
    changed: Callable[[], ChosenRows] | None = None
    annotations: Callable[[], Annotations | None] = lambda: None


class Collection:
    """One dataset that was scored.

    Attributes:
        id: of the unit: ``upstream``, or the name of a downstream dataset.
        result: its plain results, as :func:`pipeline.evaluation.collection_results` gives them, with ``id``,
            ``dataset``, ``role`` and ``about``.
    """

    def __init__(self, result: Mapping[str, Any], sources: Sources) -> None:
        self.id: str = result["id"]
        self.result = result
        self.sources = sources
        self._ranked: dict[str, Ranked] = {}

    # -- scores

    @cached_property
    def scored(self) -> list[Scored]:
        """Every contender with what each of its seeds says; absent ones too, without seeds."""
        return read_scored(self.sources.table, self.result)

    @property
    def present(self) -> list[Scored]:
        """The contenders with scores: the experiment's head first, baselines last."""
        return [item for item in self.scored if item.seeds]

    def over_seeds(self, function: Callable[[SeedScores], Mapping[str, Score]]) -> dict[str, dict[str, Any]]:
        """Contender → name → its numbers over seeds ``{median, distance, values, undefined}``.

        Args:
            function: of one seed's scores: name → score.
        """
        return {item.name: self.numbers(function(scores) for scores in item.seeds.values()) for item in self.present}

    @staticmethod
    def numbers(of_seeds: Iterator[Mapping[str, Score]]) -> dict[str, Any]:
        """Name → numbers over the seeds, from name → score of each seed."""
        found = list(of_seeds)
        return {name: plain_numbers([scores[name] for scores in found]) for name in found[0]}

    # -- rows

    @cached_property
    def chosen(self) -> ChosenRows:
        """The rows that are evaluated, for whatever the store holds of them: ``chosen.column(array, view)``."""
        return self.sources.chosen()

    @cached_property
    def rows(self) -> Rows:
        """Representation, labels, keys and relevance of the view ``center``."""
        known = self.annotations
        return replace(self.chosen.rows(CENTER), relevance=None if known is None else known.relevance)

    @cached_property
    def annotations(self) -> Annotations | None:
        """What is known of the rows beyond their labels, in their order."""
        known = self.sources.annotations()
        return None if known is None else known.of(self.chosen.keys)

    @cached_property
    def changed(self) -> ChosenRows:
        """The V rows of which there are other views: all of the collection, or a part of its dataset."""
        return self.chosen if self.sources.changed is None else self.sources.changed()

    @property
    def views(self) -> tuple[str, ...]:
        """Views that there are of the V rows, ``center`` among them."""
        return self.changed.store.layout.views

    # -- heads

    @cached_property
    def _heads(self) -> dict[str, Mapping[int, Head]]:
        return {contender.name: contender.heads for contender in self.sources.contenders()}

    def head(self, name: str, seed: int) -> Head:
        """The head of a contender, ready to run, on the device."""
        return self._heads[name][seed].to(self.sources.device).eval()

    def score_view(self, name: str, seed: int, view: str) -> HeadScores:
        """What a head says of the V rows in a view, ``center`` or another.

        Raises:
            UserError: the store has no such view; an uncertainty is not finite.
        """
        return run_head(self.head(name, seed), self.changed.representation(view), self.sources.device)

    def embedding(self, name: str, seed: int) -> NDArray[np.float32]:
        """(N, E): the embedding of a contender; of most, the representation itself."""
        if self._seed(name, seed).embedding_sha256 == self.result["representation_sha256"]:
            return self.rows.representation_ND
        return run_head(self.head(name, seed), self.rows.representation_ND, self.sources.device).embedding_NE

    def ranked(self, name: str | None = None, seed: int = 0) -> Ranked:
        """The :data:`NEIGHBOURS` nearest rows of each, and which are of its class.

        Args:
            name, seed: in this contender's embedding; None: in the representation.
        """
        whole: str = self.result["representation_sha256"]
        digest = whole if name is None else self._seed(name, seed).embedding_sha256
        if digest not in self._ranked:
            own = name is not None and digest != whole
            self._ranked[digest] = rank(
                self.embedding(str(name), seed) if own else self.rows.representation_ND,
                self.rows.label_N,
                count=NEIGHBOURS,
                relevance=self.rows.relevance,
                metric=self.result["metric"],
                device=self.sources.device,
            )
        return self._ranked[digest]

    def with_own_embedding(self) -> list[Scored]:
        """The contenders whose embedding is not the representation."""
        whole = self.result["representation_sha256"]
        return [item for item in self.present if any(s.embedding_sha256 != whole for s in item.seeds.values())]

    def _seed(self, name: str, seed: int) -> SeedScores:
        return next(item.seeds[seed] for item in self.scored if item.name == name)

    # -- images

    def thumbnails(self, rows: Sequence[int]) -> dict[int, bytes]:
        """Row → small JPEG, read from the tars; empty where images are not shown."""
        if self.sources.tars is None:
            return {}
        wanted: dict[int, set[str]] = {}
        for row in rows:
            wanted.setdefault(int(self.rows.unit_N[row]), set()).add(self.rows.keys[row])
        found = dict(read_thumbnails(self.sources.tars(), wanted))
        return {row: found[int(self.rows.unit_N[row]), self.rows.keys[row]] for row in rows}
