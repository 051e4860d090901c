"""The whole chain, submitted at once: each stage after the one before, from the images to the released model."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.conftest import finish, tree
from tests.slurm.lab import Lab
from tests.slurm.runs import LONG, SMALLER

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("slurm"), pytest.mark.timeout(900)]

CHAIN = (*SMALLER, "stage=all")
SITE = ("cluster=slurm", "cluster.cpus_per_task=1", "cluster.time=20", "cluster.max_parallel=2")


#: What people's shells say to SLURM: it hides jobs, changes what is submitted, and starts jobs without an environment.
SHELL = {
    **{"SQUEUE_STATES": "COMPLETED", "SQUEUE_PARTITION": "other", "SQUEUE_FORMAT": "%j"},
    **{"SBATCH_ARRAY_INX": "3-4", "SBATCH_WAIT": "1", "SBATCH_TIMELIMIT": "1", "SBATCH_OUTPUT": "/dev/null"},
    "SBATCH_EXPORT": "NONE",
}


def test_the_chain_ends_as_on_one_machine(
    lab: Lab, calm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in SHELL.items():
        monkeypatch.setenv(name, value)
    said = finish(tmp_path, *CHAIN, *SITE)
    jobs = lab.squeue()
    assert len({row["job"].split("_")[0] for row in jobs}) == 6, said
    waiting = [row for row in jobs if row["reason"] == "Dependency"]
    assert len(waiting) >= 5
    again = finish(tmp_path, *CHAIN, *SITE)
    assert "go on" in again
    assert len(lab.squeue()) <= len(jobs), "nothing is submitted twice"
    lab.wait_for(lambda: not lab.squeue(), 2 * LONG, "the end of the chain")
    for folder in calm.glob("*-*"):
        assert results(tmp_path / folder.name) == results(folder)
    assert "nothing to do" in finish(tmp_path, *CHAIN, *SITE)


def results(folder: Path) -> dict[str, str]:
    """The bytes of all that a stage made; who did it, and how fast, is of the run."""
    of_the_run = ("config.yaml", "log.txt", "log.csv")
    found = tree(folder).items()
    return {name: sha for name, sha in found if not name.startswith("jobs/") and Path(name).name not in of_the_run}
