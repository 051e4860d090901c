"""Who is evaluated: the experiment's head, others beside it, and the baselines (heads with nothing to train)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pipeline.config import to_plain
from pipeline.digests import difference
from pipeline.errors import UserError
from pipeline.evaluation.scoring import Scorer, SeedScores
from pipeline.heads import make_head
from pipeline.heads.base import Head, Summary
from pipeline.interruption import stop_if_asked
from pipeline.places import Place
from pipeline.progress import Progress
from pipeline.training.checkpoints import describe_head, load_head

Role = Literal["head", "compare", "baseline"]
ENTROPY = "classifier_entropy"  # the baseline that stands beside every head
CHANCE = "random"
BASELINES = (ENTROPY, "inverse_norm", CHANCE)


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


def trained(name: str, role: Role, config: Mapping[str, Any], folder: Place, seeds: Sequence[int]) -> Contender:
    """The heads that training left in ``<folder>/seed-<s>``.

    Raises:
        UserError: one is missing, damaged, or of another config (a folder that was given by hand).
    """
    heads = {seed: load_head(folder / f"seed-{seed}") for seed in seeds}
    wanted = describe_head(make_head(config))
    for head in heads.values():
        if lines := difference(describe_head(head), wanted):
            raise UserError(f"{folder} holds another head than '{name}': {'; '.join(lines)}. Unset train_head.output.")
    return Contender(name=name, role=role, config=config, heads=heads)


def untrained(name: str, role: Role, config: Mapping[str, Any], summary: Summary, seeds: Sequence[int]) -> Contender:
    """A head with nothing to train, made ready; several seeds only where they differ."""
    heads = {seed: make_head(config, seed=seed) for seed in (seeds if config["kind"] == CHANCE else seeds[:1])}
    if summary.classifier is None and any(head.needs.classifier for head in heads.values()):
        absent = "the backbone has no class head and there is no probe"
        return Contender(name=name, role=role, config=config, heads={}, absent=absent)
    for head in heads.values():
        head.prepare(summary)
    return Contender(name=name, role=role, config=config, heads=heads)


def describe(config: Mapping[str, Any]) -> str:
    """A head's kind and those of its values that are not the defaults: ``loss_prediction objective=l2``."""
    head = make_head(config)
    given, defaults = to_plain(head.config), to_plain(type(head.config)())
    return " ".join([config["kind"], *(f"{key}={value}" for key, value in given.items() if value != defaults[key])])


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
            stop_if_asked()
            seeds[seed] = scorer.score(head)
            bar.advance(1, head=contender.name)
        scored.append(Scored(contender=contender, seeds=seeds))
    bar.close()
    return scored
