"""The benchmark of all heads, whole: search, training, evaluation over each backbone, and one table of it all.

    python -m benchmarks.url_offline [--report docs/results/leaderboard.md] [setting=value …]

For each experiment (``url_offline``, ``url_offline_vit_s14``): ``submit stage=[pack,cache,probe,tune,train_head,
evaluate]``, then ``submit leaderboard`` of both. Stopped at any moment, the same command goes on; where the stages were
run before, on a cluster for instance, only the tables are made. Settings are those of ``submit``.

What a head costs is the median, over its trials, of the processor seconds of one training.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.reproductions.tables import markdown, show
from cluster.compose import compose
from cluster.overrides import read
from cluster.submit import main as submit
from pipeline.errors import UserError
from pipeline.files import read_json
from pipeline.tuning.choice import read_choice
from pipeline.tuning.trial import COST
from stages.base import Experiment, make_stage

EXPERIMENTS = ("url_offline", "url_offline_vit_s14")
STAGES = "stage=[pack,cache,probe,tune,train_head,evaluate]"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what is missing, then the tables; gives the exit code."""
    options = parser().parse_args(arguments)
    for name in () if options.show else options.experiments:
        code = submit([STAGES, f"experiment={name}", *options.settings])
        if code:
            return code
    experiments = [experiment_of(name, options.settings) for name in options.experiments]
    runs = [str(make_stage("evaluate", one).folder) for one in experiments]
    code = submit(["leaderboard", f"runs=[{','.join(runs)}]", f"into={options.into}"])
    if code:
        return code
    try:
        board = (options.into / "leaderboard.md").read_text(encoding="utf-8")
        show({"board": board.strip(), "chosen": chosen(experiments)}, options.report)
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


def parser() -> argparse.ArgumentParser:
    """Of the command line."""
    made = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    made.add_argument("settings", nargs="*", metavar="name=value", help="settings of `submit`, for every experiment")
    made.add_argument("--experiments", nargs="+", default=list(EXPERIMENTS), help="which of them")
    made.add_argument("--into", type=Path, default=Path("runs/url_offline"), help="folder of the leaderboard's page")
    made.add_argument("--report", type=Path, help="also put the tables into this document")
    made.add_argument("--show", action="store_true", help="the tables of what is there; run nothing")
    return made


def experiment_of(name: str, settings: Sequence[str]) -> Experiment:
    """An experiment with these settings of the command line."""
    line = read([STAGES, f"experiment={name}", *settings])
    return compose(line.overrides, folders=line.folders).experiment


def heads_of(experiment: Experiment) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Name and values of the heads that are compared, the experiment's own first."""
    yield experiment.head["kind"], experiment.head
    yield from experiment.compare.items()


def chosen(experiments: Sequence[Experiment]) -> str:
    """What the search chose for each head, from how much, and what a training costs."""
    lines = []
    for experiment in experiments:
        for name, values in heads_of(experiment):
            folder = make_stage("tune", experiment.with_head(values)).folder
            choice = read_choice(folder)
            spent = [read_json(path)["cpu_seconds"] for path in folder.glob(f"trial-*/{COST}")]
            settings = ", ".join(f"{key} {value}" for key, value in choice["values"].items()) or "as they stand"
            score = "–" if choice["r_auroc"] is None else f"{choice['r_auroc']:.3f}"
            cost = f"{statistics.median(spent):.1f}" if spent else "–"
            tried = f"{choice['passed']} of {choice['tried']}"
            lines.append([name, str(experiment.backbone.get("model", "")), settings, score, tried, cost])
    head = ["head", "backbone", "chosen", "R-AUROC, held-out classes", "trials that count", "CPU s a training"]
    return markdown(head, lines)


if __name__ == "__main__":
    sys.exit(main())
