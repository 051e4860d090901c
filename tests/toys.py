"""Heads that are there for tests alone, each to need what no real head needs yet."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pipeline.heads

FOLDER = str(Path(__file__).parent / "toy_heads")


@contextmanager
def toy_heads() -> Iterator[None]:
    """Inside, the heads of ``tests/toy_heads/`` are found by their names as those of ``pipeline/heads/`` are."""
    pipeline.heads.__path__.append(FOLDER)
    try:
        yield
    finally:
        pipeline.heads.__path__.remove(FOLDER)
