"""What `submit` can do, one file a verb, found by file name."""

from __future__ import annotations

import importlib
from collections.abc import Callable

from cluster.verbs.base import Request
from pipeline.discovery import names


def verb_names() -> list[str]:
    """The verbs there are."""
    return names("cluster.verbs")


def verb(name: str) -> Callable[[Request], int]:
    """What the verb called ``name`` does: a request → the exit code."""
    run: Callable[[Request], int] = importlib.import_module(f"cluster.verbs.{name}").run
    return run


def about(name: str) -> str:
    """The first line of the verb's file: what it does, for the help page."""
    return str(importlib.import_module(f"cluster.verbs.{name}").__doc__).splitlines()[0]
