"""The digits that come with scikit-learn; read once, and where they are needed: it takes seconds to import."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray


@lru_cache(maxsize=1)
def digits() -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Pixels (1797, 8, 8) in [0, 16], and what each shows (1797,)."""
    from sklearn.datasets import load_digits

    found = load_digits()
    return np.asarray(found.images), np.asarray(found.target, dtype=np.int64)
