"""Under which licence a backbone's weights come, as far as it can be known without asking anyone."""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib import metadata

import timm

from pipeline.backbones.settings import BackboneConfig

#: Licences that let anyone pass the weights on. Identifiers of https://spdx.org/licenses/, in lower case.
PERMISSIVE = frozenset({"apache-2.0", "mit", "bsd-2-clause", "bsd-3-clause", "cc0-1.0", "cc-by-4.0"})

#: How the licence files of Python packages begin.
BEGINNINGS = {
    "apache-2.0": re.compile(r"\s*apache (software )?license,?\s*(version )?2\.0", re.IGNORECASE),
    "mit": re.compile(r"\s*(the )?mit license", re.IGNORECASE),
}


@dataclass(frozen=True, kw_only=True)
class Licence:
    """``name``: SPDX identifier in lower case, or ``unknown``. ``said_by``: where that was read, for the model card."""

    name: str
    said_by: str

    @property
    def permits_copies(self) -> bool:
        """Whether a release may carry the weights without asking."""
        return self.name in PERMISSIVE


def backbone_licence(config: BackboneConfig) -> Licence:
    """The licence of the weights that ``config`` names; ``unknown`` where nobody says."""
    if config.weights == "ours":
        return Licence(name="apache-2.0", said_by="Hedgerow, which trained it")
    if config.weights == "pretrained":
        native = timm.get_pretrained_cfg(config.model)
        name = getattr(native, "license", None)
        return Licence(name=str(name or "unknown").lower(), said_by="timm")
    if config.weights == "package":
        return Licence(name=_of_package(str(config.package)), said_by=f"the Python package {config.package}")
    return Licence(name="unknown", said_by="nobody")


def _of_package(package: str) -> str:
    """From the metadata, else from the first words of the licence file."""
    distribution = metadata.distribution(package)
    if "License-Expression" in distribution.metadata:
        return str(distribution.metadata["License-Expression"]).lower()
    for file in distribution.files or ():
        if file.stem.upper() in ("LICENSE", "LICENCE"):
            text = file.read_text()
            return next((name for name, beginning in BEGINNINGS.items() if beginning.match(text)), "unknown")
    return "unknown"
