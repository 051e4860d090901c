"""Where the tests on a real SLURM are skipped, and where they are not."""

from __future__ import annotations

import pytest

from tests.slurm import packages
from tests.slurm.daemons import LabError

ERROR = LabError("slurmdbd answers: not within 60 s\nslurmdbd: fatal: need MySQL 8.0.6\nslurmdbd: bye")


@pytest.mark.parametrize("version", packages.PROVEN)
def test_where_a_lab_has_come_up_before_one_that_does_not_is_an_error(
    monkeypatch: pytest.MonkeyPatch, version: tuple[int, int]
) -> None:
    monkeypatch.setattr(packages, "version", lambda: version)
    assert packages.why_not_up(ERROR) == ""


def test_elsewhere_it_is_a_reason_in_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "version", lambda: (24, 11))
    reason = packages.why_not_up(ERROR)
    assert reason.startswith("no lab with the SLURM 24.11 of this machine (proven: 22.05): … slurmdbd answers: not")
    assert "need MySQL 8.0.6" in reason
    assert "\n" not in reason


def test_the_version_is_that_of_the_daemons() -> None:
    if packages.missing():
        pytest.skip("no SLURM here")
    assert packages.version() >= (22, 5)
