"""The rules of the house: imports run one way, stages meet on disk, every implementation can be chosen."""

from __future__ import annotations

from pathlib import Path

import pytest
from importlinter.cli import EXIT_STATUS_SUCCESS, lint_imports

from cluster.compose import CONFIGS, options
from pipeline.datasets import dataset_names
from pipeline.heads import head_names
from stages.base import stage_class, stage_names

ROOT = CONFIGS.parent


def kinds(group: str) -> set[str]:
    """The ``kind`` of every config of a group."""
    lines = [line for path in (CONFIGS / group).glob("*.yaml") for line in path.read_text().splitlines()]
    return {line.split("#")[0].split(":")[1].strip() for line in lines if line.startswith("kind:")}


def test_imports_run_one_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert lint_imports(no_cache=True) == EXIT_STATUS_SUCCESS


def test_every_stage_has_its_config_and_every_config_its_stage() -> None:
    assert options("stage") == stage_names()


@pytest.mark.parametrize("name", stage_names())
def test_a_stage_is_called_like_its_file(name: str) -> None:
    assert stage_class(name).name == name
    assert "output" in stage_class(name).Config.operational


def test_every_head_and_dataset_can_be_chosen() -> None:
    assert kinds("head") == set(head_names())
    assert kinds("dataset") == set(dataset_names())


@pytest.mark.parametrize("path", sorted((CONFIGS / "experiment").glob("*.yaml")), ids=lambda path: path.stem)
def test_an_experiment_says_its_name_command_time_and_result(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert f"\nname: {path.stem}\n" in text
    for part in ("# command:", "# time:", "# expected:"):
        assert part in text


def test_packages_are_listed_one_by_one() -> None:
    listed = (ROOT / "pyproject.toml").read_text()
    for folder in sorted(
        {path.parent for top in ("pipeline", "stages", "cluster") for path in (ROOT / top).rglob("*.py")}
    ):
        assert f'"{".".join(folder.relative_to(ROOT).parts)}"' in listed
