"""Uncertainty heads, one file a method, found by file name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pipeline.config import parse, to_plain
from pipeline.discovery import implementation, module_of, names
from pipeline.settings import kind_of, parse_settings

if TYPE_CHECKING:
    from pipeline.heads.base import Head

PACKAGE, WHAT = "pipeline.heads", "head"


def head_names() -> list[str]:
    """The heads there are."""
    return names(PACKAGE)


def head_class(name: str) -> type[Head]:
    """The head defined in ``pipeline/heads/<name>.py``.

    Raises:
        UserError: there is no such head; lists the valid names.
    """
    from pipeline.heads.base import Head  # brings torch along

    return implementation(PACKAGE, name, WHAT, Head)


def check_head(values: Any, where: str = "head") -> dict[str, Any]:
    """``{kind: <name>, …}`` with every value filled in and checked; waits for torch only if it must.

    Raises:
        UserError: no or unknown ``kind``, unknown keys, values out of range.
    """
    kind, values = kind_of(values, where, PACKAGE, WHAT)
    settings = parse_settings(values, where, module_of(PACKAGE, kind, WHAT), lambda: head_class(kind))
    return {"kind": kind, **to_plain(settings)}


def make_head(values: Any, *, seed: int = 0) -> Head:
    """The head that ``{kind: <name>, …}`` describes, not yet prepared; errors as of :func:`check_head`."""
    kind, values = kind_of(values, WHAT, PACKAGE, WHAT)
    cls = head_class(kind)
    return cls(parse(cls.Config, values, WHAT), seed=seed)
