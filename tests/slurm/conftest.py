"""One SLURM for all tests of this folder."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.slurm import packages
from tests.slurm.lab import Lab


@pytest.fixture(scope="session")
def lab() -> Iterator[Lab]:
    """Four nodes; brought up once for all tests that carry ``pytest.mark.xdist_group("slurm")``."""
    if reason := packages.why_not():
        pytest.skip(reason)
    with Lab() as lab:
        yield lab


@pytest.fixture(autouse=True)
def _in_a_calm_lab(request: pytest.FixtureRequest) -> Iterator[None]:
    """The environment of a test leads to the lab; what the test leaves there is cleared away."""
    if "lab" not in request.fixturenames:
        yield
        return
    lab: Lab = request.getfixturevalue("lab")
    with pytest.MonkeyPatch.context() as patched:
        for name in set(os.environ) - set(lab.environment()):
            patched.delenv(name)
        for name, value in lab.environment().items():
            patched.setenv(name, value)
        yield
        lab.calm()
