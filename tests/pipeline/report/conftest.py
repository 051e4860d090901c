"""Fewer dots an inch: the tests look at what is drawn, not at how fine."""

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module", autouse=True)
def coarse_plots() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pipeline.report.style.DOTS", 40)
        yield
