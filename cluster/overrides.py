"""What stands on the command line: a verb, a choice of stages, flags, and ``key=value`` in Hydra's grammar."""

from __future__ import annotations

import importlib
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, OverrideType
from hydra.errors import HydraException

from cluster.compose import GROUPS, options, top_keys
from pipeline.config import field_names, parse
from pipeline.discovery import names, unknown_name
from pipeline.errors import UserError
from stages.base import stage_class, stage_names

VERBS = "cluster.verbs"
DEFAULT_VERB = "submit"
ALL = "all"
HELP = ("help", "--help", "-h")
JSON = "--json"
CONFIG_DIR = "--config-dir"
UNIT = "--unit"


@dataclass(frozen=True, kw_only=True)
class CommandLine:
    """A command line, understood.

    Attributes:
        verb: a file of ``cluster/verbs/``.
        stages: as written after ``stage=``; empty when nothing was, ``("all",)`` for the whole chain.
        overrides: for :func:`cluster.compose.compose`, keys qualified.
        folders: of ``--config-dir``: they hold groups like ``configs/`` does.
        settings: the overrides as they were written.
        help: help is asked for.
        json: the answer is to be JSON.
        units: of ``--unit``: only these are asked about.
        options: of the verb, made of its ``Options`` class; None where it has none, or help is asked for.
    """

    verb: str
    stages: tuple[str, ...]
    overrides: tuple[str, ...]
    folders: tuple[Path, ...] = ()
    settings: tuple[str, ...] = ()
    help: bool = False
    json: bool = False
    units: tuple[str, ...] = ()
    options: Any = None

    def command(self, stages: Sequence[str] = ()) -> str:
        """The shell command that submits ``stages`` (default: the same ones) with the same settings."""
        chosen = stages or self.stages
        choice = chosen[0] if len(chosen) == 1 else f"[{','.join(chosen)}]"
        words, settings = choice.split(" "), self.settings  # "train_head head=<name>" is one link of a chain
        if len(words) > 1:
            settings = tuple(item for item in settings if not item.startswith("head="))
        folders = [word for folder in self.folders for word in ("--config-dir", str(folder))]
        return shlex.join(["submit", *folders, f"stage={words[0]}", *words[1:], *settings])


def read(arguments: Sequence[str]) -> CommandLine:
    """Understand a command line.

    Raises:
        UserError: a word, key, stage or group option that there is not; the message lists those there are.
    """
    words = [word for word in arguments if word not in (*HELP, JSON)]
    folders = tuple(_folder(value) for value in _option(words, CONFIG_DIR))
    units = tuple(_option(words, UNIT))
    verb = words.pop(0) if words and re.fullmatch(r"\w+", words[0]) else DEFAULT_VERB
    if verb not in names(VERBS):
        raise unknown_name("verb", verb, names(VERBS))
    of_verb = verb_options(verb)
    given = _take_words(words, of_verb)
    parsed = [_parse(word) for word in words]
    chosen = _chosen([item for item in parsed if item.key_or_group == "stage" and item.package is None])
    rest = [item for item in parsed if item.key_or_group != "stage" or item.package is not None]
    keys = field_names(of_verb) if of_verb else []
    given |= {item.key_or_group: item.value() for item in rest if item.key_or_group in keys}
    rest = [item for item in rest if item.key_or_group not in keys]
    help = any(word in HELP for word in arguments)
    return CommandLine(
        verb=verb,
        stages=chosen,
        overrides=tuple(_qualified(item, chosen, folders) for item in rest),
        folders=folders,
        settings=tuple(str(item.input_line) for item in rest),
        help=help,
        json=JSON in arguments,
        units=units,
        options=parse(of_verb, given, "") if of_verb and not help else None,
    )


def verb_options(verb: str) -> type[Any] | None:
    """The config class ``Options`` of a verb's file: keys that this verb alone has. None where it has none."""
    return getattr(importlib.import_module(f"{VERBS}.{verb}"), "Options", None)


def _take_words(words: list[str], of_verb: type[Any] | None) -> dict[str, Any]:
    """Take out of ``words`` those without a key, where the verb has a key that they are values of."""
    key = getattr(of_verb, "words", None)
    if key is None:
        return {}
    taken = [word for word in words if "=" not in word and not word.startswith(("-", "~"))]
    words[:] = [word for word in words if word not in taken]
    return {key: taken}


def _option(words: list[str], name: str) -> list[str]:
    """Take every ``name VALUE`` (or ``name=VALUE``) out of ``words``; the values."""
    found: list[str] = []
    for place in reversed([i for i, word in enumerate(words) if word.split("=")[0] == name]):
        _, equals, value = words.pop(place).partition("=")
        if not equals:
            value = words.pop(place) if place < len(words) else ""
        if not value:
            raise UserError(f"{name}: needs a value, e.g. {name}=…")
        found.insert(0, value)
    return found


def _folder(value: str) -> Path:
    if not Path(value).is_dir():
        raise UserError(f"{CONFIG_DIR}: '{value}' is not a folder. Give one with groups like configs/, e.g. head/.")
    return Path(value)


def _parse(word: str) -> Override:
    if not word.startswith("~") and "=" not in word:
        known = f"Verbs: {', '.join(names(VERBS))}"
        raise UserError(f"cannot read '{word}': settings are written key=value. {known}; they come first.")
    try:
        override = OverridesParser.create().parse_override(word)
    except HydraException as error:
        reason = str(error).splitlines()[0]
        raise UserError(
            f"cannot read '{word}': {reason}. Write key=value; quote with '…' what has special signs."
        ) from None
    if override.is_sweep_override():
        raise UserError(f"cannot read '{word}': for several values write a list, key=[first,second].")
    return override


def _chosen(overrides: Sequence[Override]) -> tuple[str, ...]:
    """The stages after ``stage=``, checked."""
    if not overrides:
        return ()
    value: Any = overrides[-1].value()
    chosen = tuple(str(item) for item in (value if isinstance(value, list) else [value]))
    for name in chosen:
        if name not in [*stage_names(), ALL]:
            raise unknown_name("stage", name, [*stage_names(), ALL])
    return (ALL,) if ALL in chosen else chosen


def _qualified(override: Override, chosen: Sequence[str], folders: Sequence[Path]) -> str:
    """The override as Hydra gets it: short keys qualified, and values merged without asking whether YAML has the key.

    The dataclasses know better than the YAML which keys there are, and say so better.
    """
    line, key = str(override.input_line), override.key_or_group
    value = "" if override.type is OverrideType.DEL else override.value()
    if key in GROUPS and isinstance(value, str) and override.type is OverrideType.CHANGE:
        if value not in options(key, folders):
            raise unknown_name(key, value, options(key, folders))
        return line
    full = _full_key(key, chosen)
    if override.type is OverrideType.CHANGE and override.package is None:
        return f"++{full}={line.split('=', 1)[1]}"
    return line.replace(key, full, 1)


def _full_key(key: str, chosen: Sequence[str]) -> str:
    """``seeds`` → ``train_head.seeds``, where only one of the chosen stages has that key."""
    first = key.split(".")[0]
    if first in top_keys():
        return key
    among = stage_names() if not chosen or ALL in chosen else chosen
    keys = {name: field_names(stage_class(name).Config) for name in among}
    owners = [name for name in among if first in keys[name]]
    if len(owners) > 1:
        raise UserError(f"'{key}' is a key of several stages; say which: {', '.join(f'{o}.{key}' for o in owners)}.")
    if not owners:
        raise unknown_name("key", first, {*top_keys(), *(k for fields in keys.values() for k in fields)})
    return f"{owners[0]}.{key}"
