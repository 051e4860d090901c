"""The keys of a config class for a person: name, type and range, default, and what its author wrote beside it."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import io
import json
import textwrap
import tokenize
from collections.abc import Mapping
from dataclasses import dataclass
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from pipeline.config import to_plain

_SIGNS = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}


@dataclass(frozen=True, kw_only=True)
class Key:
    """One key: ``augmentation.flip``, ``float ≥ 0 ≤ 1``, the default as YAML has it, the comment in the source."""

    name: str
    type: str
    default: str
    doc: str


def describe(cls: type[Any], values: Any = None, prefix: str = "") -> list[Key]:
    """The keys of a config class, those of nested configs after the key that holds them.

    Args:
        cls: made with :func:`pipeline.config.config`.
        values: a checked instance whose values are shown instead of the class's defaults.
        prefix: of the names, with its dot.
    """
    hints, docs = get_type_hints(cls, include_extras=True), _docs(cls)
    keys: list[Key] = []
    for field in dataclasses.fields(cls):
        value = getattr(values, field.name) if values is not None else _default(field)
        nested = dataclasses.is_dataclass(value)
        keys.append(
            Key(
                name=prefix + field.name,
                type="keys below" if nested else _type(hints[field.name]),
                default="" if nested else _shown(value),
                doc=docs.get(field.name, ""),
            )
        )
        if nested:
            keys.extend(describe(type(value), value, f"{prefix}{field.name}."))
    return keys


def table(keys: list[Key]) -> list[str]:
    """Lines of ``name = default``, with the doc behind and the type below it."""
    lines = []
    for key in keys:
        lines.append(f"  {key.name}" + (f" = {key.default}" if key.default else ""))
        lines.extend(f"      {text}" for text in (key.type, key.doc) if text)
    return lines


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default is not dataclasses.MISSING:
        return field.default
    return field.default_factory() if field.default_factory is not dataclasses.MISSING else dataclasses.MISSING


def _shown(value: Any) -> str:
    if value is dataclasses.MISSING:
        return "(needs a value)"
    plain = to_plain(value)
    if isinstance(plain, list):
        return f"[{', '.join(_shown(item) for item in plain)}]"
    if isinstance(plain, Mapping):
        return f"{{{', '.join(f'{name}: {_shown(item)}' for name, item in plain.items())}}}"
    return json.dumps(plain) if plain is None or isinstance(plain, bool) else str(plain)


def _docs(cls: type[Any]) -> dict[str, str]:
    """What is written beside every field in the source of the class, and of those it inherits from."""
    docs: dict[str, str] = {}
    for part in reversed(cls.__mro__):
        if not dataclasses.is_dataclass(part):
            continue
        source = textwrap.dedent(inspect.getsource(part))
        beside, above = _comments(source)
        docs.update(_attributes(part))
        body = next(node for node in ast.parse(source).body if isinstance(node, ast.ClassDef)).body
        for node, after in zip(body, [*body[1:], None], strict=True):
            if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
                continue
            if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
                docs[node.target.id] = " ".join(str(after.value.value).split())
            elif written := [text for text in (above.get(node.lineno), beside.get(node.end_lineno or 0)) if text]:
                docs[node.target.id] = " ".join(written)
    return docs


def _comments(source: str) -> tuple[dict[int, str], dict[int, str]]:
    """Line → the comment at its end; line → the comment lines that stand right above it."""
    beside: dict[int, str] = {}
    above: dict[int, str] = {}
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        line, text = token.start[0], token.string.lstrip("# ").rstrip()
        if token.line.lstrip().startswith("#"):
            above[line + 1] = " ".join(part for part in (above.pop(line, ""), text) if part)
        else:
            beside[line] = text
    return beside, above


def _attributes(cls: type[Any]) -> dict[str, str]:
    """The ``Attributes:`` section of the class's docstring."""
    lines = (inspect.getdoc(cls) or "").partition("Attributes:\n")[2].splitlines()
    found: dict[str, str] = {}
    names: list[str] = []
    for line in lines:
        indent = len(line) - len(line.lstrip())
        if indent == 4 and ":" in line:
            before, _, text = line.strip().partition(":")
            names = [name.strip() for name in before.split(",")]
            found.update({name: text.strip() for name in names})
        elif indent > 4:
            found.update({name: f"{found[name]} {line.strip()}" for name in names})
        elif line.strip():
            break
    return found


def _type(hint: Any) -> str:
    """A type as a person would say it: ``int ≥ 1``, ``ranking | l2``, ``list of str``."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Annotated:
        marks = [mark for extra in parts[1:] for mark in getattr(extra, "metadata", ())]
        ranges = [
            f"{sign} {getattr(mark, side)}" for mark in marks for side, sign in _SIGNS.items() if hasattr(mark, side)
        ]
        return " ".join([_type(parts[0]), *ranges])
    if origin is Literal:
        return " | ".join(map(str, parts))
    if origin in (Union, UnionType):
        return " | ".join(map(_type, parts))
    if origin is tuple:
        return f"list of {_type(parts[0])}"
    if hint is type(None):
        return "null"
    return getattr(hint, "__name__", str(hint))
