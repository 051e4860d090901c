"""Which stages a choice means, and in which order; found from what each says it reads."""

from __future__ import annotations

from collections.abc import Sequence

from cluster.overrides import ALL
from stages.base import Experiment, Stage, make_stage

GOAL = "release"  # stage=all is everything a released model is made from


def upstream(name: str, experiment: Experiment) -> list[str]:
    """``name`` and all stages it needs, each after those it reads."""
    found: list[str] = []

    def visit(stage: str) -> None:
        for before in sorted(make_stage(stage, experiment).inputs()):
            visit(before)
        if stage not in found:
            found.append(stage)

    visit(name)
    return found


def read_by(stage: Stage) -> list[Stage]:
    """The stages that a stage reads; a comparison of heads reads what was made of each of them."""
    compared = stage.experiment.compare.values() if "compare" in stage.groups else ()
    heads = [stage.experiment, *(stage.experiment.with_head(values) for values in compared)]
    return [
        make_stage(name, experiment) for experiment in heads for name in make_stage(stage.name, experiment).inputs()
    ]


def chain(chosen: Sequence[str], experiment: Experiment) -> dict[str, Stage]:
    """The chosen stages in the order of their inputs, each under the words that choose it.

    A stage that makes something of ``head`` and that a chosen comparison of heads reads comes once a head:
    ``stage=[train_head,evaluate]`` gives ``train_head``, ``train_head head=<name>`` for each of ``evaluate.compare``,
    and ``evaluate``.
    """
    if ALL in chosen:
        chosen = upstream(GOAL, experiment)
    order = [name for goal in chosen for name in upstream(goal, experiment)]
    ordered = [name for name in dict.fromkeys(order) if name in chosen]
    comparing = [name for name in ordered if "compare" in make_stage(name, experiment).groups]
    compared = {before for name in comparing for before in upstream(name, experiment) if before != name}
    links: dict[str, Stage] = {}
    for name in ordered:
        links[name] = make_stage(name, experiment)
        if name in compared and "head" in links[name].groups:
            others = {head: values for head, values in experiment.compare.items() if values != experiment.head}
            for head, values in others.items():
                links[f"{name} head={head}"] = make_stage(name, experiment.with_head(values))
    return links
