"""What every metric refuses, with the place of the first offender."""

from __future__ import annotations

from collections.abc import Sequence, Sized

import numpy as np
from numpy.typing import NDArray

from pipeline.errors import UserError


def refuse_nan(values: NDArray[np.floating], what: str) -> None:
    """Refuse NaN: it has no place in an order, so every rank-based number with it would be an invention.

    Raises:
        UserError: says how many there are and the index of the first.
    """
    _refuse(np.isnan(values), what, "NaN")


def refuse_non_finite(values: NDArray[np.floating], what: str, keys: Sequence[str] | None = None) -> None:
    """Refuse NaN and infinity.

    Raises:
        UserError: says how many rows have one and the index of the first, and its key where keys are given.
    """
    _refuse(~np.isfinite(values), what, "NaN or infinite", keys)


def _refuse(bad: NDArray[np.bool_], what: str, fault: str, keys: Sequence[str] | None = None) -> None:
    if bad.any():
        rows = np.unique(np.nonzero(bad)[0])
        named = "" if keys is None else f" ({keys[rows[0]]})"
        raise UserError(f"{what}: {len(rows)} of {len(bad)} rows are {fault}, the first at index {rows[0]}{named}.")


def same_length(**arrays: Sized) -> int:
    """The common length of the arrays.

    Raises:
        UserError: they differ; says which has what length.
    """
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        raise UserError(f"arrays of different lengths: {', '.join(f'{name} {n}' for name, n in lengths.items())}.")
    return next(iter(lengths.values()))
