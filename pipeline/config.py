"""Configs: frozen, keyword-only dataclasses that refuse unknown keys and check ranges when they are made."""

from __future__ import annotations

import dataclasses
import difflib
import types
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, dataclass_transform

import pydantic
from pydantic.dataclasses import dataclass as _pydantic_dataclass

from pipeline.errors import UserError
from pipeline.places import RemotePath

T = TypeVar("T")


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(dataclasses.field, pydantic.Field))
def config(cls: type[T]) -> type[T]:
    """Class decorator for a config dataclass. Give ranges with ``Annotated[int, Field(ge=1)]`` or ``pydantic.Field``.

    A class variable ``operational: ClassVar[frozenset[str]]`` names the fields that say how and where the work is
    done (workers, device, folder) and so take no part in the digest of what is done. ``later`` names fields that came
    when there were runs already: with its default, such a field takes no part either, so that those runs are found.
    """
    strict = pydantic.ConfigDict(
        extra="forbid",
        validate_default=True,
        arbitrary_types_allowed=False,
        allow_inf_nan=False,  # neither has a place in JSON, of which the digest is
    )
    return _pydantic_dataclass(frozen=True, kw_only=True, config=strict)(cls)  # type: ignore[return-value]


def field_names(cls: type[Any]) -> list[str]:
    """The keys a config accepts."""
    return [field.name for field in dataclasses.fields(cls)]


def parse(cls: type[T], values: Mapping[str, Any], where: str) -> T:
    """Make a ``cls`` from plain values, or say everything that is wrong with them.

    Args:
        cls: a class made with :func:`config`.
        values: plain JSON-like values.
        where: the place of these values in the whole config, as the user writes it (``cache``, ``head``).

    Raises:
        UserError: unknown keys (with the valid ones and the nearest), missing ones, values out of range.
    """
    try:
        return pydantic.TypeAdapter(cls).validate_python(dict(values))
    except pydantic.ValidationError as error:
        found = error.errors()
        wrong = {item["loc"] for item in found}
        # of a list whose item is wrong pydantic also says that it is too short
        shown = [i for i in found if i["type"] != "too_short" or all(x[:-1] != i["loc"] for x in wrong)]
        lines = [_line(cls, item, where) for item in _alternatives(cls, [dict(item) for item in shown])]
        raise UserError("\n".join(lines)) from None


def _alternatives(cls: type[Any], errors: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of a value that may be one thing or another, pydantic complains once for each; here it is one complaint."""
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for error in errors:
        place = tuple(error["loc"][:-1])  # the last part of it is what the value might have been
        several = _annotation(cls, place)
        is_union = typing.get_origin(several) in (typing.Union, types.UnionType) and _config_in(several) is None
        if not is_union or not isinstance(error["loc"][-1], str):  # a place in a list says more
            found[(*error["loc"], len(found))] = error
        elif place in found:
            found[place]["msg"] += f"; or {error['msg'][0].lower()}{error['msg'][1:]}"
        else:
            found[place] = {**error, "type": "alternatives", "loc": place}
    return [*found.values()]


def _line(cls: type[Any], error: dict[str, Any], where: str) -> str:
    place = ".".join([where, *(str(part) for part in error["loc"])]) if where else ".".join(map(str, error["loc"]))
    if error["type"] in ("unexpected_keyword_argument", "extra_forbidden"):
        valid = _valid(cls, error["loc"][:-1])
        nearest = difflib.get_close_matches(str(error["loc"][-1]), valid, n=1)
        hint = f" Did you mean '{nearest[0]}'?" if nearest else ""
        listing = f" Valid: {', '.join(valid)}." if valid else ""
        return f"{place}: unknown key.{hint}{listing}"
    if error["type"] in ("missing", "missing_keyword_only_argument"):
        return f"{place}: needs a value, e.g. {place}=…"
    if error["type"] == "value_error":  # raised by the class itself, which says what it got
        return f"{place}: {error['ctx']['error']}"
    if error["type"] in ("tuple_type", "list_type"):
        return f"{place}: write a list, e.g. {place}=[{error['input']}] (got {error['input']!r})"
    if error["type"] == "too_short":
        return f"{place}: needs at least {error['ctx']['min_length']} item in its list (got {error['input']!r})"
    if error["type"] in ("dataclass_type", "dict_type"):
        return f"{place}: must be keys and values, not {error['input']!r}; e.g. {place}.<key>=<value>"
    return f"{place}: {error['msg']} (got {error['input']!r})"


def _valid(cls: type[Any], place: Sequence[Any]) -> list[str]:
    """The keys of the config that stands at ``place`` inside a ``cls``; none where that is no config."""
    found = _config_in(_annotation(cls, place))
    return [] if found is None else field_names(found)


def _annotation(cls: type[Any], place: Sequence[Any]) -> Any:
    """What may stand at ``place`` inside a ``cls``; None where that is not known."""
    found: Any = cls
    for part in place:
        field = getattr(_config_in(found), "__pydantic_fields__", {}).get(str(part))
        found = None if field is None else field.annotation
    return found


def _config_in(annotation: Any) -> type[Any] | None:
    return next((one for one in (annotation, *typing.get_args(annotation)) if _is_config(one)), None)


def _is_config(found: Any) -> bool:
    return isinstance(found, type) and dataclasses.is_dataclass(found)


def to_plain(value: Any) -> Any:
    """A config as JSON-like values (paths become strings, tuples lists)."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: to_plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): to_plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_plain(item) for item in value]
    if isinstance(value, (set, frozenset)):
        return sorted(to_plain(item) for item in value)
    return str(value) if isinstance(value, (Path, RemotePath)) else value


def meaning(value: Any) -> Any:
    """Like :func:`to_plain`, without operational fields and ``later`` ones at their default: what the digest is of."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        left_out: frozenset[str] = getattr(value, "operational", frozenset())
        later: frozenset[str] = getattr(value, "later", frozenset())
        fields = [
            field.name
            for field in dataclasses.fields(value)
            if field.name not in left_out and not (field.name in later and getattr(value, field.name) == field.default)
        ]
        return {name: meaning(getattr(value, name)) for name in fields}
    if isinstance(value, Mapping):
        return {str(key): meaning(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [meaning(item) for item in value]
    return to_plain(value)
