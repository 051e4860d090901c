"""One digest for a resolved config, and a readable difference between two of them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any


def canonical_json(value: Any) -> str:
    """The one JSON text of ``value``: sorted keys, no white space, no NaN."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def digest(value: Any) -> str:
    """Hex SHA-256 of the canonical JSON of ``value``."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()


def _leaves(value: Any, path: str) -> dict[str, Any]:
    if isinstance(value, Mapping) and value:
        items = [(f"{path}.{key}" if path else str(key), item) for key, item in value.items()]
    elif isinstance(value, Sequence) and not isinstance(value, str) and value:
        items = [(f"{path}[{index}]", item) for index, item in enumerate(value)]
    else:
        return {path: value}
    return {key: leaf for name, item in items for key, leaf in _leaves(item, name).items()}


def difference(old: Any, new: Any) -> list[str]:
    """Lines ``key: old → new`` for every leaf in which two JSON values differ; empty when they are equal."""
    before, after = _leaves(old, ""), _leaves(new, "")
    absent = object()
    lines = []
    for key in sorted(before.keys() | after.keys()):
        left, right = before.get(key, absent), after.get(key, absent)
        if left is absent:
            lines.append(f"{key}: absent → {json.dumps(right)}")
        elif right is absent:
            lines.append(f"{key}: {json.dumps(left)} → absent")
        elif canonical_json(left) != canonical_json(right):
            lines.append(f"{key}: {json.dumps(left)} → {json.dumps(right)}")
    return lines
