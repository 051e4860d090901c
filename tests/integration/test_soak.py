"""The soak in small, every time; docs/results/soak.md has the full one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.soak import BROKEN_EVERY, soak

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not Path("/proc").is_dir(), reason="finds the workers in /proc")]


def test_killed_workers_leave_the_store_of_a_calm_one(tmp_path: Path) -> None:
    facts = soak(tmp_path, units=BROKEN_EVERY, kills=2, seed=1, workers=2)
    assert facts["problems"] == []
    assert facts["different"] == []
    assert sum(facts["kills"].values()) == 2
    assert facts["broken_tars"] == 1
    assert facts["quarantined"] > 5
    assert facts["exit_code"] == facts["calm_exit_code"] == 1  # the broken tar
