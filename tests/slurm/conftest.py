"""One SLURM for all tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.conftest import finish
from tests.slurm import packages
from tests.slurm.daemons import LabError
from tests.slurm.lab import Lab
from tests.slurm.runs import SMALLER


@pytest.fixture(scope="session")
def lab() -> Iterator[Lab]:
    """Four nodes, arrays of at most four; brought up once for all tests with ``pytest.mark.xdist_group("slurm")``."""
    if reason := packages.why_not():
        pytest.skip(reason)
    lab = Lab(cpus=16, max_array_size=4, grace_s=20)
    try:
        lab.up()
    except LabError as error:
        if reason := packages.why_not_up(error):
            pytest.skip(reason)
        raise
    try:
        yield lab
    finally:
        lab.down()


@pytest.fixture(scope="session")
def calm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run folders of the whole chain, worked by this process alone."""
    runs = tmp_path_factory.mktemp("calm")
    finish(runs, *SMALLER, "stage=all")
    return runs


@pytest.fixture(autouse=True)
def _in_a_calm_lab(request: pytest.FixtureRequest) -> Iterator[None]:
    """The environment of a test leads to the lab; what the test leaves there is cleared away."""
    if "lab" not in request.fixturenames:
        yield
        return
    lab: Lab = request.getfixturevalue("lab")
    with lab.leads():
        yield
        lab.calm()
