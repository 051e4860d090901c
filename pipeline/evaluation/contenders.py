"""Who is evaluated: the experiment's head, others beside it, and the baselines (heads with nothing to train)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pipeline.evaluation.scoring import Scorer, SeedScores
from pipeline.heads.base import Head
from pipeline.progress import Progress

Role = Literal["head", "compare", "baseline"]
ENTROPY = "classifier_entropy"  # the baseline that stands beside every head
BASELINES = (ENTROPY, "inverse_norm", "random")


@dataclass(frozen=True, kw_only=True)
class Contender:
    """A method that is evaluated.

    Attributes:
        name: shown in tables; unique among the contenders.
        role: why it is there.
        config: its ``{kind, …}``.
        heads: seed → head that is ready (prepared, trained).
        absent: why there is no head to run; "" where there is.
    """

    name: str
    role: Role
    config: Mapping[str, Any]
    heads: Mapping[int, Head]
    absent: str = ""


@dataclass(frozen=True, kw_only=True)
class Scored:
    """A contender and what each of its seeds says; no seeds where it is absent."""

    contender: Contender
    seeds: Mapping[int, SeedScores]


def score_all(scorer: Scorer, contenders: Sequence[Contender], progress: Progress) -> list[Scored]:
    """Run every head of every contender over the scorer's rows."""
    bar = progress.bar("scoring", sum(len(contender.heads) for contender in contenders), "heads")
    scored = []
    for contender in contenders:
        seeds = {}
        for seed, head in contender.heads.items():
            seeds[seed] = scorer.score(head)
            bar.advance(1, head=contender.name)
        scored.append(Scored(contender=contender, seeds=seeds))
    bar.close()
    return scored
