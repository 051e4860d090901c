"""A new method is one file: implementations are found by file name, and imported when asked for."""

from __future__ import annotations

import difflib
import importlib
import pkgutil
from collections.abc import Iterable
from typing import Any

from pipeline.errors import UserError


def names(package: str, *, leave_out: Iterable[str] = ("base",)) -> list[str]:
    """The implementations in ``package``: its modules' names, sorted, without ``base`` and private ones."""
    found = pkgutil.iter_modules(importlib.import_module(package).__path__)
    return sorted(m.name for m in found if m.name not in set(leave_out) and not m.name.startswith("_"))


def unknown_name(what: str, name: str, valid: Iterable[str]) -> UserError:
    """The error for a name that does not exist: it lists the valid ones and suggests the nearest."""
    valid = sorted(valid)
    nearest = difflib.get_close_matches(name, valid, n=1)
    hint = f" Did you mean '{nearest[0]}'?" if nearest else ""
    return UserError(f"unknown {what} '{name}'.{hint} Valid: {', '.join(valid) or 'none'}.")


def module_of(package: str, name: str, what: str) -> str:
    """The module ``<package>.<name>``, not imported.

    Raises:
        UserError: there is no such file; the message lists those that exist.
    """
    valid = names(package)
    if name not in valid:
        raise unknown_name(what, name, valid)
    return f"{package}.{name}"


def implementation(package: str, name: str, what: str, base: type[Any]) -> type[Any]:
    """The one subclass of ``base`` defined in ``<package>/<name>.py``.

    Raises:
        UserError: there is no such file; the message lists those that exist.
    """
    module = importlib.import_module(module_of(package, name, what))
    found = [
        item
        for item in vars(module).values()
        if isinstance(item, type) and issubclass(item, base) and item.__module__ == module.__name__
    ]
    assert len(found) == 1, f"{module.__name__} must define exactly one subclass of {base.__name__}, it has {found}"
    return found[0]
