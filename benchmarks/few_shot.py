"""The few-shot curve of URL (App. C.6, Fig. 13): what a few samples of each downstream class add to a pretrained head.

    python -m benchmarks.few_shot [--report docs/results/few_shot.md] [setting=value …]

Each head is trained upstream (``experiment=demo_heads``), then goes on with k samples of each class of a downstream set
(``experiment=few_shot``), and is judged on rows that no k takes: one test for all k, and for the head as it was, k = 0.
A seed is one of the head that goes on and of the samples that are drawn. Stopped at any moment, the same command goes
on. Settings are those of ``submit``.

A head that learns from task losses takes those of a probe on the very samples. A store has the scores of one probe, so
each number of samples has a copy of the store.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path

from benchmarks._few_shot_tables import SCORES, Curves, draw, table
from benchmarks.reproductions.tables import show
from cluster.compose import compose
from cluster.overrides import read
from cluster.progress import progress_on
from pipeline.errors import UserError
from pipeline.files import move_folder, read_json, temporary_folder
from pipeline.heads import make_head
from pipeline.places import Place
from pipeline.progress import Progress
from stages.base import Experiment, Stage, complete, is_done, make_stage

HEADS = ("elk", "nivmf", "mc_info_nce", "loss_prediction", "joint_loss_prediction", "cross_entropy")
PICTURE = "few_shot.png"


@dataclass(frozen=True, kw_only=True)
class Bench:
    """What the command line asks for.

    Attributes:
        upstream: settings of the experiment that trains the heads.
        downstream: settings of the experiment in which they go on.
        heads: names of files in ``configs/head``.
        shots: numbers of samples of each class, ascending.
        seeds: of the heads and of the samples.
    """

    upstream: Sequence[str]
    downstream: Sequence[str]
    heads: Sequence[str]
    shots: Sequence[int]
    seeds: Sequence[int]

    def pretraining(self, head: str, seed: int) -> Stage:
        """Trains a head upstream."""
        return make_stage("train_head", _composed(*self.upstream, f"head={head}", f"train_head.seeds=[{seed}]"))

    def judging(self, head: str, shots: int, seed: int) -> Stage:
        """Evaluates a head that went on, and with it the head as it was.

        Raises:
            UserError: it is not trained upstream.
        """
        words = self._words(head, shots, seed)
        experiment = _composed(*words)
        if make_head(experiment.head).needs.task_loss:
            cache = make_stage("cache", experiment).folder
            own = cache.with_name(f"{cache.name}-shots-{shots}-{seed}")
            probing = ("train_head.task_loss=probe", f"probe.shots={shots}", f"probe.shots_seed={seed}")
            experiment = _composed(*words, *probing, f"cache.output='{own}'")
        return make_stage("evaluate", experiment)

    def filling(self) -> Stage:
        """Fills the store of the downstream set, which no probe looks at."""
        return make_stage("cache", _composed(*self.downstream))

    def _words(self, head: str, shots: int, seed: int) -> Sequence[str]:
        before = self.pretraining(head, seed).folder / f"seed-{seed}"
        going_on = {"init_from": f"'{before}'", "seeds": f"[{seed}]", "shots": shots, "shots_seed": seed}
        return (
            *(*self.downstream, f"head={head}", f"evaluate.without_shots={self.shots[-1]}"),
            *(f"train_head.{name}={value}" for name, value in going_on.items()),
        )

    def points(self) -> Iterator[tuple[int, str, int]]:
        """Seed, head and number of shots: the first seed of all, then the second, …"""
        return product(self.seeds, self.heads, self.shots)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what is missing, then the tables and the plot; gives the exit code."""
    options = parser().parse_args(arguments)
    try:
        bench = Bench(
            upstream=(*options.upstream, *options.settings),
            downstream=(*options.downstream, *options.settings),
            heads=options.heads,
            shots=sorted(set(options.shots)),
            seeds=options.seeds,
        )
        if not options.show:
            perform(bench, progress_on(sys.stderr))
        curves = curves_of(bench)
        parts = {name: table(curves, name) for name in SCORES}
        show(parts, options.report)
        draw(curves, (options.report.parent if options.report else Path()) / PICTURE)
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\nstopped; the same command goes on", file=sys.stderr)
        return 130
    return 0


def parser() -> argparse.ArgumentParser:
    """Of the command line."""
    made = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    made.add_argument("settings", nargs="*", metavar="name=value", help="settings of `submit`, upstream and downstream")
    made.add_argument("--heads", nargs="+", default=list(HEADS), help="which go on")
    made.add_argument("--shots", nargs="+", type=int, default=[1, 2, 5, 10], help="samples of each class")
    made.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2], help="of the heads, and of the samples")
    for name, experiment, does in (("upstream", "demo_heads", "trains them"), ("downstream", "few_shot", "goes on")):
        made.add_argument(
            f"--{name}",
            nargs="+",
            metavar="name=value",
            default=[f"experiment={experiment}"],
            help=f"settings of the experiment that {does}",
        )
    made.add_argument("--report", type=Path, help="also put the tables into this document, and the plot beside it")
    made.add_argument("--show", action="store_true", help="the tables of what is there; run nothing")
    return made


def perform(bench: Bench, progress: Progress) -> None:
    """Do what is missing.

    Raises:
        UserError: images are not there, or a setting is wrong.
    """
    points = list(bench.points())
    bar = progress.bar("points", len(points), "point")
    for seed, head, shots in points:
        complete(bench.pretraining(head, seed), progress)
        stage = bench.judging(head, shots, seed)
        if not is_done(stage):
            _copy_store(bench.filling(), stage.before("cache").folder, progress)
            complete(stage, progress)
        bar.advance(last=f"{head}, {shots} shots, seed {seed}")
    bar.close()


def _copy_store(filling: Stage, own: Place, progress: Progress) -> None:
    """Make a store of its own for one probe, where it is wanted and not there: no image need be looked at again."""
    source = filling.folder
    if own == source or own.exists():
        return
    if not isinstance(source, Path) or not isinstance(own, Path):
        raise UserError(f"{own}: stores are copied in local folders only. Set runs_root to one.")
    complete(filling, progress)
    with temporary_folder(own) as made:
        shutil.copytree(source, made, dirs_exist_ok=True)
        move_folder(made, own)


@cache
def _composed(*words: str) -> Experiment:
    line = read(words)
    return compose(line.overrides, folders=line.folders).experiment


def curves_of(bench: Bench) -> Curves:
    """The scores that are there.

    Raises:
        UserError: points of one seed were judged on other images.
    """
    curves = Curves(shots=bench.shots)
    judged: dict[int, str] = {}  # seed → hash of the images
    for seed, head, shots in bench.points():
        if not is_done(bench.pretraining(head, seed)):
            continue
        folder = bench.judging(head, shots, seed).folder
        if not (result := folder / "results" / "upstream.json").exists():
            continue
        found = read_json(result)
        if judged.setdefault(seed, found["images_sha256"]) != found["images_sha256"]:
            raise UserError(f"{folder} judged other images than the points before it; remove it and start again.")
        probed = make_head(bench.pretraining(head, seed).experiment.head).needs.task_loss
        for contender in found["contenders"]:
            curves.add(contender, head=head, shots=shots, seed=seed, probed=probed)
    return curves


if __name__ == "__main__":
    sys.exit(main())
