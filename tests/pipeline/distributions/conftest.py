"""What holds for all tests of distributions."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from torch.distributions import Distribution


@pytest.fixture(autouse=True)
def _values_are_looked_at() -> Iterator[None]:
    """torch.compile turns the default of ``validate_args`` off for the whole process, for all tests that follow."""
    before = Distribution._validate_args  # type: ignore[attr-defined]
    Distribution.set_default_validate_args(True)
    yield
    Distribution.set_default_validate_args(before)
