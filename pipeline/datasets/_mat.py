"""Files of MATLAB as numpy arrays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from pipeline.errors import UserError


def read_mat(path: Path, *names: str) -> list[Any]:
    """The variables ``names`` of a file of MATLAB 4 to 7.2, axes of length one left out.

    Raises:
        UserError: no such file of MATLAB, or a variable is not in it.
    """
    from scipy.io import loadmat  # takes long to import, and few datasets need it

    try:
        found = loadmat(path, squeeze_me=True, variable_names=names)
    except Exception as error:  # scipy raises all sorts for damaged files
        raise UserError(f"{path} cannot be read as a file of MATLAB ({error}). Get it again.") from None
    missing = [name for name in names if name not in found]
    if missing:
        raise UserError(f"{path} has no variable {', '.join(missing)}: another file of that name? Get it again.")
    return [found[name] for name in names]


def read_structs(path: Path, name: str, *fields: str) -> list[tuple[Any, ...]]:
    """The ``fields`` of each struct of the array ``name``.

    Raises:
        UserError: as of :func:`read_mat`, or a field is not there.
    """
    rows = np.atleast_1d(read_mat(path, name)[0])
    missing = [field for field in fields if field not in (rows.dtype.names or ())]
    if missing:
        raise UserError(f"{path}: {name} has no {', '.join(missing)}: another file of that name? Get it again.")
    return [tuple(row[field] for field in fields) for row in rows]
