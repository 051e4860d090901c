"""Write the golden files and the pages of methods anew: ``python tests/golden/regenerate.py`` from the root, after a
change that is meant."""

from __future__ import annotations

import sys
from pathlib import Path
from unittest.mock import patch

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parent.parent
METHODS = ROOT / "docs" / "methods"
sys.path.insert(0, str(ROOT))

from omegaconf import OmegaConf  # noqa: E402

from cluster.compose import compose, options  # noqa: E402
from tests.golden.methods import pages  # noqa: E402


def resolved(experiment: str) -> str:
    """The resolved config of an experiment as YAML, without what a developer has in configs/local.yaml."""
    with patch("cluster.compose.LOCAL", "absent"):
        return str(OmegaConf.to_yaml(OmegaConf.create(dict(compose([f"experiment={experiment}"]).resolved))))


if __name__ == "__main__":
    for name in options("experiment"):
        (FOLDER / f"{name}.yaml").write_text(resolved(name), encoding="utf-8")
    METHODS.mkdir(exist_ok=True)
    for old in METHODS.glob("*.md"):
        old.unlink()
    for name, text in pages().items():
        (METHODS / name).write_text(text, encoding="utf-8")
