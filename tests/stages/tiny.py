"""An experiment whose data and backbone nobody looks at: for stages that begin at a store."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipeline.config import parse
from stages.base import Experiment, stage_class

PROBE = {"folds": 2, "l2": [0.1]}


def tiny(folder: Path, head: Mapping[str, Any], *, runs: str = "runs", **stages: Mapping[str, Any]) -> Experiment:
    """Runs lie in ``<folder>/<runs>``; ``stages`` gives the values of each that is there beside cache and probe."""
    values = {"cache": {}, **stages, "probe": {**PROBE, **stages.get("probe", {})}}
    return Experiment(
        name="tiny",
        data_root=folder / "data",
        runs_root=folder / runs,
        dataset={"kind": "webdataset", "root": "nowhere"},
        backbone={"model": "never loaded"},
        head=head,
        downstream={},
        compare={},
        stages={name: parse(stage_class(name).Config, of_stage, name) for name, of_stage in values.items()},
    )
