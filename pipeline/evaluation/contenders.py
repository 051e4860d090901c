"""Who is evaluated: the experiment's head, others beside it, and the baselines (heads with nothing to train)."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pipeline.config import to_plain
from pipeline.digests import difference
from pipeline.errors import UserError
from pipeline.evaluation.scoring import Scorer, SeedScores
from pipeline.heads import make_head
from pipeline.heads.base import Head, Summary
from pipeline.interruption import stop_if_asked
from pipeline.metrics.undefined import Undefined
from pipeline.places import Place
from pipeline.progress import Progress
from pipeline.report.look import ENTROPY
from pipeline.training.checkpoints import describe_head, load_head, restore_head
from pipeline.training.config import TrainingConfig
from pipeline.training.initial import read_initial
from pipeline.training.sweep import points

Role = Literal["head", "compare", "baseline"]
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
    for seed, head in heads.items():
        if lines := difference({"seed": head.seed, **describe_head(head)}, {"seed": seed, **wanted}):
            raise UserError(
                f"{folder / f'seed-{seed}'} holds another head than '{name}': {'; '.join(lines)}. Unset "
                "train_head.output, or find the misplaced one with `submit verify stage=train_head`."
            )
    return Contender(name=name, role=role, config=config, heads=heads)


def trained_at_points(
    name: str, role: Role, config: Mapping[str, Any], folder: Place, training: TrainingConfig
) -> list[Contender]:
    """What one run trained: its seeds, at each point of its sweep a contender, of which the first has the role.

    Raises:
        UserError: a head is missing, damaged, or of another config.
    """
    return [
        trained(
            f"{name} {point.name}".strip(),
            "compare" if place else role,
            config,
            point.folder(folder),
            training.seeds,
        )
        for place, point in enumerate(points(training))
    ]


def before_training(place: Place, seeds: Sequence[int]) -> Contender:
    """The heads that training started from, as they are there: what it has changed is seen beside them.

    Raises:
        UserError: there is none, or it is damaged.
    """
    checkpoints = read_initial(place, seeds).heads
    heads = {seed: restore_head(one.record, one.tensors) for seed, one in checkpoints.items()}
    if len({id(one) for one in checkpoints.values()}) == 1:  # one for all seeds
        heads = {seeds[0]: heads[seeds[0]]}
    config = checkpoints[seeds[0]].record["head"]
    return Contender(name=f"{config['kind']} before training", role="compare", config=config, heads=heads)


def untrained(name: str, role: Role, config: Mapping[str, Any], summary: Summary, seeds: Sequence[int]) -> Contender:
    """A head that no row makes, ready; several seeds only where they differ."""
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


def line_up(
    head: Mapping[str, Any],
    compare: Mapping[str, Mapping[str, Any]],
    trained_as: Callable[[str, Role, Mapping[str, Any]], list[Contender]],
    summary: Callable[[], Summary],
    seeds: Sequence[int],
) -> list[Contender]:
    """The experiment's head first, then those beside it, then the baselines that are not among them.

    Args:
        head: of the experiment.
        compare: name → the heads beside it.
        trained_as: name, role, config → the contenders that training left of it.
        summary: of the upstream store, for heads that no row makes.
        seeds: of those that draw.
    """
    found = trained_as(describe(head), "head", head)
    for name, values in compare.items():
        if make_head(values).fitted:
            found += trained_as(name, "compare", values)
        else:
            found.append(untrained(name, "compare", values, summary(), seeds))
    kinds = {item.config["kind"] for item in found}
    left = [kind for kind in BASELINES if kind not in kinds]
    return [*found, *(untrained(kind, "baseline", {"kind": kind}, summary(), seeds) for kind in left)]


@dataclass(frozen=True, kw_only=True)
class Scored:
    """A contender and what each of its seeds says; no seeds where it is absent. Other fields are the contender's."""

    name: str
    role: Role
    config: Mapping[str, Any]
    seeds: Mapping[int, SeedScores]
    absent: str = ""

    @property
    def shown_seed(self) -> int:
        """The seed that pictures show: its primary R-AUROC is nearest to the median; the first of equals."""
        values = {seed: scores.r_auroc() for seed, scores in self.seeds.items()}
        known = {seed: value for seed, value in values.items() if not isinstance(value, Undefined)}
        if not known:
            return next(iter(values))
        median = statistics.median(known.values())
        return min(known, key=lambda seed: abs(known[seed] - median))

    @property
    def shown(self) -> SeedScores:
        """What that seed says."""
        return self.seeds[self.shown_seed]

    def at(self, seed: int) -> SeedScores | None:
        """What a seed says; a method of one seed (most baselines) says that at all. None: it lacks this one."""
        return next(iter(self.seeds.values())) if len(self.seeds) == 1 else self.seeds.get(seed)


def score_all(scorer: Scorer, contenders: Sequence[Contender], progress: Progress) -> list[Scored]:
    """Run every head of every contender over the scorer's rows.

    Raises:
        UserError: a head says what is not finite; names it.
    """
    bar = progress.bar("scoring", sum(len(contender.heads) for contender in contenders), "heads")
    scored = []
    for contender in contenders:
        seeds = {}
        for seed, head in contender.heads.items():
            stop_if_asked()
            try:
                seeds[seed] = scorer.score(head)
            except UserError as error:
                raise UserError(
                    f"{contender.name}, seed {seed}: {error} Train it with a lower learning rate or another seed, or "
                    "leave it out of what is evaluated (head, evaluate.compare)."
                ) from error
            bar.advance(1, head=contender.name)
        scored.append(
            Scored(
                name=contender.name,
                role=contender.role,
                config=contender.config,
                seeds=seeds,
                absent=contender.absent,
            )
        )
    bar.close()
    return scored
