"""Every experiment resolves to the config that is written here: a default that changes unnoticed changes results."""

from __future__ import annotations

import pytest

from cluster.compose import options
from tests.golden.regenerate import FOLDER, resolved


def test_every_experiment_has_its_golden_file() -> None:
    assert sorted(path.stem for path in FOLDER.glob("*.yaml")) == options("experiment")


@pytest.mark.parametrize("name", options("experiment"))
def test_resolved_config_is_the_golden_one(name: str) -> None:
    golden = (FOLDER / f"{name}.yaml").read_text(encoding="utf-8")
    assert resolved(name) == golden, "if this change is meant: make golden, and read the difference"
