"""As many jobs in the queue as one may have."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.slurm.lab import Lab
from tests.slurm.runs import Run

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("slurm"), pytest.mark.timeout(300)]


def test_what_fits_is_submitted_and_the_same_command_goes_on(lab: Lab, calm: Path, tmp_path: Path) -> None:
    run = Run(lab, tmp_path / "run", calm, units_per_task=1)
    run.slow.unlink()
    lab.limit_submissions(2)
    others = lab.run("sbatch", "--parsable", "--hold", "--array=0-1", "--output=/dev/null", "--wrap=true")
    said = run.submit(code=1)
    assert "as many jobs in the queue as SLURM takes (AssocMaxSubmitJobLimit), so 6 units are not submitted" in said
    assert run.jobs() == []
    lab.run("scancel", f"{others}_1")
    assert "6 units in 1 tasks" in run.submit()
    lab.run("scancel", others)
    run.wait_for_end()
    assert run.problems(calm) == []
    assert "nothing to do" in run.submit()
