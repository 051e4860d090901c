"""Uncertainty heads, one file a method, found by file name."""

from __future__ import annotations

from typing import Any

from pipeline.config import parse
from pipeline.discovery import implementation, names
from pipeline.errors import UserError
from pipeline.heads.base import Head


def head_names() -> list[str]:
    """The heads there are."""
    return names("pipeline.heads")


def head_class(name: str) -> type[Head]:
    """The head defined in ``pipeline/heads/<name>.py``.

    Raises:
        UserError: there is no such head; lists the valid names.
    """
    return implementation("pipeline.heads", name, "head", Head)


def parse_head(values: Any, where: str = "head") -> tuple[str, Any]:
    """``{kind: <name>, …}`` → the head's name and its checked config.

    Raises:
        UserError: no or unknown ``kind``, unknown keys, values out of range.
    """
    values = dict(values)
    kind = values.pop("kind", None)
    if kind is None:
        raise UserError(f"{where}.kind: needs the name of a head. Valid: {', '.join(head_names())}.")
    return str(kind), parse(head_class(str(kind)).Config, values, where)


def make_head(values: Any, *, seed: int = 0) -> Head:
    """The head that ``{kind: <name>, …}`` describes, not yet prepared."""
    name, config = parse_head(values)
    return head_class(name)(config, seed=seed)
