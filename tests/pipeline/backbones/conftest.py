"""Tiny timm models with random weights."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.fixture
def tiny() -> dict[str, Any]:
    """A ViT of a few thousand parameters, 64-d, three classes."""
    return {"model": "test_vit", "weights": "random", "size": 32, "num_classes": 3, "compute": "fp32", "device": "cpu"}
