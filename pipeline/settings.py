"""The settings of a method, read out of its file without running the rest of it.

A method is one file, and its ``Config`` stands beside code that needs torch, which takes seconds to import. Whoever
only wants to know what a config means, as ``submit status`` does, has the statements of the file run that the
``Config`` needs, and no others: the class itself, and whatever at the top of the file binds a name that it uses, and
what those use; of private files beside it likewise. So it is the very class, with its ranges and checks. Where the file
is not written so that this can be done, all of it is imported.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

from pipeline.config import parse
from pipeline.discovery import names
from pipeline.errors import UserError

CONFIG = "Config"


def kind_of(values: Any, where: str, package: str, what: str) -> tuple[str, dict[str, Any]]:
    """``{kind: <name>, …}`` → the name, and the rest.

    Raises:
        UserError: there is no ``kind``; lists the names of the implementations in ``package``.
    """
    values = dict(values)
    kind = values.pop("kind", None)
    if not kind:
        article = "an" if what[0] in "aeiou" else "a"
        raise UserError(f"{where}.kind: needs the name of {article} {what}. Valid: {', '.join(names(package))}.")
    return str(kind), values


def parse_settings(values: Any, where: str, module: str, import_all: Callable[[], type[Any]]) -> Any:
    """``values`` as a checked instance of the ``Config`` of a method.

    Args:
        values: plain values.
        where: their place in the whole config, as the user writes it.
        module: of the method.
        import_all: the method itself, for where its file must be imported to know its settings.

    Raises:
        UserError: unknown keys, values out of range.
    """
    return parse(read_settings(module) or import_all().Config, values, where)


@cache
def read_settings(module: str) -> type[Any] | None:
    """The ``Config`` of the one class in a file that has one, made without importing the file.

    None: it is imported already, or it must be.
    """
    if module in sys.modules:
        return None  # nothing is to be saved
    target = _target(_tree(module))
    if target is None:
        return None
    name = target.name if isinstance(target, ast.ClassDef) else target.id
    found = _run(module, target).__dict__[name]
    return found if isinstance(found, type) else None


def _tree(module: str) -> ast.Module:
    return ast.parse(Path(_file(module)).read_text(encoding="utf-8"))


def _file(module: str) -> str:
    spec = find_spec(module)
    assert spec is not None, module
    assert spec.origin is not None, module
    return spec.origin


def _target(tree: ast.Module) -> ast.ClassDef | ast.Name | None:
    """What is the ``Config`` of the one class that has one: a class inside of it, or a name at the top of the file."""
    found = [
        part.value if isinstance(part, ast.Assign) else part
        for holder in tree.body
        if isinstance(holder, ast.ClassDef)
        for part in holder.body
        if (isinstance(part, ast.ClassDef) and part.name == CONFIG)
        or (isinstance(part, ast.Assign) and [ast.unparse(target) for target in part.targets] == [CONFIG])
    ]
    only = found[0] if len(found) == 1 else None
    return only if isinstance(only, ast.ClassDef | ast.Name) else None


def _run(module: str, target: ast.ClassDef | ast.Name) -> ModuleType:
    """A module with what ``target`` needs of the file, and with ``target`` where that is a class inside of another."""
    part = ModuleType(f"{module}.settings")
    part.__file__, part.__package__ = _file(module), module.rpartition(".")[0]
    sys.modules[part.__name__] = part  # known by its name while its annotations are looked up
    needed, used = _needed(_tree(module), target)
    body: list[ast.stmt] = [target] if isinstance(target, ast.ClassDef) else []
    for statement in reversed(needed):
        if not isinstance(statement, ast.ImportFrom) or not _is_beside(statement, module):
            body.insert(0, statement)
            continue
        for alias in statement.names:
            if (name := alias.asname or alias.name) in used:
                wanted = ast.Name(alias.name, ast.Load())
                part.__dict__[name] = _run(str(statement.module), wanted).__dict__[alias.name]
    exec(compile(ast.Module(body=body, type_ignores=[]), part.__file__, "exec"), part.__dict__)
    return part


def _is_beside(statement: ast.ImportFrom, module: str) -> bool:
    """Whether names are imported from a private file of the same package, which is not imported already."""
    package, _, name = (statement.module or "").rpartition(".")
    own = not statement.level and package == module.rpartition(".")[0] and name.startswith("_")
    return own and statement.module not in sys.modules


def _needed(tree: ast.Module, target: ast.ClassDef | ast.Name) -> tuple[list[ast.stmt], set[str]]:
    """The statements at the top of the file that ``target`` needs, in their order, and the names that it needs."""
    homes: dict[str, list[ast.stmt]] = {}
    for statement in tree.body:
        for name in _bound(statement):
            homes.setdefault(name, []).append(statement)
    needed: list[ast.stmt] = []
    used, wanted = set[str](), ["annotations", *_used(target)]  # the first: of the line that is about the future
    while wanted:
        used.add(name := wanted.pop())
        for statement in homes.pop(name, []):
            if statement not in needed:
                needed.append(statement)
                wanted += _used(statement)
    return [statement for statement in tree.body if statement in needed], used


def _bound(node: ast.AST) -> Iterator[str]:
    """The names that a statement binds, however deep in ``if`` or ``try``."""
    if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        yield node.name
        return
    if isinstance(node, ast.alias):
        yield (node.asname or node.name).partition(".")[0]
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id
    for child in ast.iter_child_nodes(node):
        yield from _bound(child)


def _used(node: ast.AST) -> Iterator[str]:
    """The names that are looked up when it runs. Annotations of functions are not."""
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
        yield node.id
    for field, value in ast.iter_fields(node):
        if field == "returns" or (field == "annotation" and isinstance(node, ast.arg)):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _used(child)
