"""Write the golden files anew: ``python tests/golden/regenerate.py`` from the root, after a change that is meant."""

from __future__ import annotations

import sys
from pathlib import Path
from unittest.mock import patch

FOLDER = Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER.parent.parent))

from omegaconf import OmegaConf  # noqa: E402

from cluster.compose import compose, options  # noqa: E402


def resolved(experiment: str) -> str:
    """The resolved config of an experiment as YAML, without what a developer has in configs/local.yaml."""
    with patch("cluster.compose.LOCAL", "absent"):
        return str(OmegaConf.to_yaml(OmegaConf.create(dict(compose([f"experiment={experiment}"]).resolved))))


if __name__ == "__main__":
    for name in options("experiment"):
        (FOLDER / f"{name}.yaml").write_text(resolved(name), encoding="utf-8")
