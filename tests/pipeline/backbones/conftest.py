"""Tiny timm models with random weights."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def tiny() -> dict[str, Any]:
    """A ViT of a few thousand parameters, 64-d, three classes."""
    return {"model": "test_vit", "weights": "random", "size": 32, "num_classes": 3, "compute": "fp32", "device": "cpu"}
