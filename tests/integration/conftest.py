"""The stages as a user runs them: the ``submit`` command in a process of its own, on the digits experiment in small."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from cluster.submit import main
from pipeline.files import read_json, sha256_file

ROOT = Path(__file__).resolve().parents[2]
SMALL = (
    "experiment=demo_digits",
    "dataset.images_per_class=4",
    "downstream.digit_pairs_unseen.images_per_class=8",
    "pack.min_tars=6",
    "cache.random_views=2",
    "probe.folds=2",
    "probe.l2=[0.01]",
    "train_head.batch_size=64",
    "train_head.steps=400",
    "train_head.seeds=[0,1]",
    "train_head.log_every=20",
    "train_head.checkpoint_seconds=0",
    "evaluate.analyses=[r_auroc,extremes]",  # all would take longer than what is tested here
)


def runs_root(runs: Path) -> str:
    """The setting, quoted: any path may be meant."""
    quoted = str(runs).replace("'", "\\'")
    return f"runs_root='{quoted}'"


def in_small(runs: Path, words: Sequence[str]) -> list[str]:
    """A command line on the small experiment: its verb first, if it has one, and its own settings last."""
    verb = [word for word in words[:1] if "=" not in word]
    return [*verb, *SMALL, runs_root(runs), *words[len(verb) :]]


def start(runs: Path, *words: str, rarely: bool = False) -> subprocess.Popen[bytes]:
    """``submit <words>`` with run folders below ``runs``; ``rarely``: checkpoints only where they must be."""
    command = [sys.executable, "-m", "cluster.submit", *in_small(runs, words)]
    if rarely:
        command = [word.replace("checkpoint_seconds=0", "checkpoint_seconds=1000") for word in command]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def finish(runs: Path, *words: str, code: int = 0) -> str:
    """What ``submit <words>`` prints, in this process (which has imported torch already); it must end with ``code``."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output), contextlib.chdir(ROOT):
        ended = main(in_small(runs, words))
    assert ended == code, output.getvalue()
    return output.getvalue()


def one(runs: Path, stage: str) -> Path:
    """The run folder of an upstream stage; evaluation has a pack and a cache of its own beside it."""
    (folder,) = (
        folder
        for folder in runs.glob(f"{stage}-*")
        if read_json(folder / "run.json")["meaning"].get("dataset", {}).get("split", "seen") == "seen"
    )
    return folder


def tree(folder: Path) -> dict[str, str]:
    """Every file's bytes; telemetry and jobs are of the run, not of the result."""
    of_the_run = {"telemetry", "jobs"}
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and not of_the_run & {*path.parts}]
    return {str(path.relative_to(folder)): sha256_file(path) for path in files}


@pytest.fixture(scope="session")
def calm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run folders of the whole chain, which nobody disturbed."""
    runs = tmp_path_factory.mktemp("calm")
    output = finish(runs, "stage=all", "evaluate.compare=[]")
    (runs / "output.txt").write_text(output)
    return runs
