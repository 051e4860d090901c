"""From configs/ and ``key=value`` overrides to one checked :class:`~stages.base.Experiment`.

Hydra composes (never ``@hydra.main``, so no global state stays behind and no working folder changes); the frozen
dataclasses of stages, heads, backbones, datasets and executors check. Everything that is wrong is said at once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import yaml
from hydra import compose as hydra_compose
from hydra import initialize_config_dir
from hydra.core.config_store import ConfigStore
from hydra.errors import HydraException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from cluster.executors import check_executor
from cluster.recipe import Recipe
from pipeline.backbones import parse_backbone
from pipeline.config import field_names, parse, to_plain
from pipeline.datasets import check_dataset
from pipeline.discovery import unknown_name
from pipeline.errors import UserError
from pipeline.heads import check_head
from pipeline.places import Place, as_output, as_place
from stages.base import Experiment, stage_class, stage_names

CONFIGS = Path(__file__).resolve().parent.parent / "configs"
GROUPS = ("dataset", "backbone", "head", "cluster", "experiment", "recipe")
PLACE_KEYS = {"data_root": as_place, "runs_root": as_output}
PLAIN_KEYS = ("name", *PLACE_KEYS)


@dataclass(frozen=True, kw_only=True)
class _Named:
    """A top-level key whose items are named elsewhere: each name is a file of ``group`` that is composed under it."""

    stage: str  # the stage's key that lists the names …
    key: str
    group: str


NAMED = {
    "downstream": _Named(stage="evaluate", key="datasets", group="dataset"),
    "compare": _Named(stage="evaluate", key="compare", group="head"),
    "beside": _Named(stage="cache", key="beside", group="backbone"),
}
DEFAULT_EXPERIMENT = "demo"
LOCAL = "local"  # configs/local.yaml: a user's own defaults, not in git
OF_THE_SITE = re.compile(r"[+~]*(cluster[.=@]|runs_root=)")  # settings that say where, hence nothing of what comes out
_PRIMARY = "hedgerow_primary"
_BASE_60 = ("tag:yaml.org,2002:str", re.compile(r"[-+]?[0-9]+(?::[0-5]?[0-9])+$"))
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # in C, where PyYAML was built with it

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Composed:
    """What a command line means.

    Attributes:
        experiment: for the stages.
        cluster: the executor's ``{kind, …}``.
        resolved: the whole config as plain values, defaults filled in.
    """

    experiment: Experiment
    cluster: Mapping[str, Any]
    resolved: Mapping[str, Any]


def top_keys() -> list[str]:
    """The first components that a key may have."""
    return [*PLAIN_KEYS, *GROUPS, *NAMED, *stage_names()]


def options(group: str, folders: Sequence[Path] = ()) -> list[str]:
    """The names a group knows: its YAML files in ``configs/`` and in ``folders``."""
    return sorted({path.stem for root in (CONFIGS, *folders) for path in (root / group).glob("*.yaml")})


def compose(overrides: Sequence[str], *, folders: Sequence[Path] = ()) -> Composed:
    """The experiment that ``overrides`` (Hydra's grammar, keys qualified) describe.

    Its further datasets, heads and backbones are composed under the names that its stages list, so that
    ``downstream.<name>.root=…`` and the like work. What is listed is known only when it is composed: so it is guessed,
    and where the guess was wrong it is composed once to learn the names and once with them.

    Raises:
        UserError: Hydra cannot compose it, or values are unknown, missing or out of range (all of them are listed).
    """
    composed = _check(*_composed(overrides, folders))
    words = [word for folder in folders for word in ("--config-dir", str(folder))]
    settings = (*words, *(item.removeprefix("++") for item in overrides if not OF_THE_SITE.match(item)))
    return replace(composed, experiment=replace(composed.experiment, settings=settings))


def _composed(overrides: Sequence[str], folders: Sequence[Path]) -> tuple[dict[str, Any], dict[str, tuple[str, ...]]]:
    """The values, and the names that stages list."""
    if guessed := _as_guessed(overrides, _guess(overrides), folders):
        return guessed
    of_names = re.compile(rf"[+~]*({'|'.join(NAMED)})[.=]|[+~]*\w+@")
    names = _listed(_hydra([item for item in overrides if not of_names.match(item)], {}, folders))
    for key, named in NAMED.items():
        for name in names[key]:
            if name not in options(named.group, folders):
                raise unknown_name(named.group, name, options(named.group, folders))
    return _hydra(overrides, names, folders), names


def _as_guessed(
    overrides: Sequence[str], guess: dict[str, tuple[str, ...]], folders: Sequence[Path]
) -> tuple[dict[str, Any], dict[str, tuple[str, ...]]] | None:
    """The values and the guess where it was right; whatever is wrong is said by whoever learns the names."""
    try:
        values = _hydra(overrides, guess, folders)
        return (values, guess) if _listed(values) == guess else None
    except UserError:
        return None


def _guess(overrides: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """The names as the experiment's own file and plain overrides list them, read without Hydra: half of its time."""
    given = dict(item.lstrip("+").split("=", 1) for item in overrides if "=" in item)
    file = CONFIGS / "experiment" / f"{given.get('experiment', DEFAULT_EXPERIMENT)}.yaml"
    listed: Mapping[str, Any] = {}
    with suppress(OSError, yaml.YAMLError):
        listed = yaml.load(file.read_bytes(), Loader=_LOADER)
    found = {}
    for key, named in NAMED.items():
        with suppress(yaml.YAMLError, AttributeError, TypeError):
            text = given.get(f"{named.stage}.{named.key}")
            names = (listed.get(named.stage) or {}).get(named.key) if text is None else yaml.load(text, Loader=_LOADER)
            found[key] = tuple(map(str, names or ()))
    return {key: found.get(key, ()) for key in NAMED}


def _listed(values: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    return {key: _names(values.get(named.stage) or {}, named) for key, named in NAMED.items()}


def _names(stage: Mapping[str, Any], named: _Named) -> tuple[str, ...]:
    names, where = stage.get(named.key) or (), f"{named.stage}.{named.key}"
    if isinstance(names, str) or not all(isinstance(name, str) for name in names):
        first = names if isinstance(names, str) else "<name>"
        raise UserError(f"{where}: write a list of names, e.g. {where}=[{first}].")
    if repeated := [name for place, name in enumerate(names) if name in names[:place]]:
        raise UserError(f"{where}: {repeated[0]} stands there twice.")
    return tuple(names)


def _hydra(overrides: Sequence[str], names: Mapping[str, Sequence[str]], folders: Sequence[Path]) -> dict[str, Any]:
    """Compose with Hydra; plain values, interpolations resolved.

    The primary config is made here, so that a new stage file needs no edit of a list.
    """
    local = [f"/{LOCAL}"] if (CONFIGS / f"{LOCAL}.yaml").exists() else []
    primary = {
        "defaults": [
            "/config",
            *(f"/stage/{name}@{name}" for name in stage_names() if name in options("stage", folders)),
            *({f"/{NAMED[key].group}@{key}.{name}": name} for key, listed in names.items() for name in listed),
            {"/experiment": DEFAULT_EXPERIMENT},
            *local,
            "_self_",
        ],
        "hydra": {"searchpath": [f"file://{folder.resolve()}" for folder in folders]},
    }
    store = ConfigStore.instance()
    store.store(_PRIMARY, primary)
    try:
        with initialize_config_dir(str(CONFIGS), version_base="1.3"), _times_are_text():
            config = hydra_compose(_PRIMARY, overrides=list(overrides))
        if missing := sorted(OmegaConf.missing_keys(config)):
            raise UserError("\n".join(f"{key}: needs a value, e.g. {key}=…" for key in missing))
        plain = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    except (HydraException, OmegaConfBaseException) as error:
        raise UserError(_one_line(error)) from None
    finally:
        store.repo.pop(f"{_PRIMARY}.yaml")
    assert isinstance(plain, dict)
    return {str(key): value for key, value in plain.items()}


@contextmanager
def _times_are_text() -> Iterator[None]:
    """Meanwhile ``time: 12:00:00`` in a file is what it looks like. To YAML 1.1 it is 43,200: a number in base 60."""
    before = yaml.SafeLoader.yaml_implicit_resolvers  # OmegaConf's loader begins with a copy of them
    yaml.SafeLoader.yaml_implicit_resolvers = {first: [_BASE_60, *found] for first, found in before.items()}
    try:
        yield
    finally:
        yaml.SafeLoader.yaml_implicit_resolvers = before


def _one_line(error: Exception) -> str:
    """Hydra's complaint without its list of search paths and advice."""
    lines = [line.strip() for line in str(error).splitlines()]
    kept = [line for line in lines if line and not line.startswith(("Config search path", "provider=", "See http"))]
    return "the config does not compose: " + " ".join(kept)


class _Checks:
    """Runs checks and keeps what they complain of, so that all of it can be said at once."""

    def __init__(self) -> None:
        self.problems: list[str] = []

    def run(self, check: Callable[..., T], *arguments: Any) -> T | None:
        """What ``check(*arguments)`` gives; None if it complains."""
        try:
            return check(*arguments)
        except UserError as error:
            self.problems.extend(str(error).splitlines())
            return None

    def each(self, check: Callable[[Any, str], Any], values: Any, names: Sequence[str], where: str) -> dict[str, Any]:
        """Check the item of every name; an item that ``evaluate`` does not name is refused."""
        given = dict(values or {})
        self.problems.extend(str(unknown_name(where, name, names)) for name in sorted(given.keys() - set(names)))
        return {name: self.run(check, given[name], f"{where}.{name}") for name in names}


def _check(values: dict[str, Any], names: Mapping[str, Sequence[str]]) -> Composed:
    checks = _Checks()
    unknown = sorted(values.keys() - set(top_keys()))
    checks.problems.extend(str(unknown_name("key", key, top_keys())) for key in unknown)
    check = {"dataset": _dataset, "backbone": _backbone, "head": _head}
    parts: dict[str, Any] = {group: checks.run(check[group], values.get(group), group) for group in check}
    for key, named in NAMED.items():
        parts[key] = checks.each(check[named.group], values.get(key), names[key], key)
    checks.run(_refuse_equals, parts["compare"])
    cluster = checks.run(_cluster, values.get("cluster"), "cluster")
    checks.run(_recipe, values.get("recipe"))
    stages = {name: checks.run(_stage, name, values.get(name)) for name in stage_names()}
    places: dict[str, Any] = {key: checks.run(_place, kind, values.get(key), key) for key, kind in PLACE_KEYS.items()}
    if checks.problems:
        raise UserError("\n".join(checks.problems))
    assert cluster is not None
    experiment = Experiment(
        name=str(values["name"]),
        data_root=places["data_root"],
        runs_root=places["runs_root"],
        stages=stages,
        **parts,
    )
    plain = to_plain(experiment)
    groups = {key: item for key, item in plain.items() if key not in ("stages", "settings")}
    resolved = groups | {"cluster": cluster} | plain["stages"]
    return Composed(experiment=experiment, cluster=cluster, resolved=resolved)


def _place(kind: Callable[[Any], Place], value: Any, where: str) -> Place:
    try:
        return kind(value)
    except UserError as error:
        raise UserError(f"{where}: {error}") from None


def _dataset(values: Any, where: str) -> dict[str, Any]:
    return check_dataset(_mapping(values, where), where)


def _backbone(values: Any, where: str) -> dict[str, Any]:
    return dict(to_plain(parse_backbone(_mapping(values, where), where)))


def _head(values: Any, where: str) -> dict[str, Any]:
    return check_head(_mapping(values, where), where)


def _refuse_equals(compare: Mapping[str, Any]) -> None:
    names = {key: [name for name, values in compare.items() if values == one] for key, one in compare.items() if one}
    for key, alike in names.items():
        if key != alike[0]:
            raise UserError(
                f"evaluate.compare: {key} is the same head as {alike[0]}, setting by setting. Name one of them, or "
                f"give it other settings: compare.{key}.<key>=<value>."
            )


def _recipe(values: Any) -> Recipe:
    return parse(Recipe, _mapping(values, "recipe"), "recipe")


def _cluster(values: Any, where: str) -> dict[str, Any]:
    return check_executor(_mapping(values, where), where)


def _stage(name: str, values: Any) -> Any:
    """A stage's checked config. The names that it lists stand in the experiment, resolved."""
    config_class = stage_class(name).Config
    dropped = {named.key for named in NAMED.values() if named.stage == name} - set(field_names(config_class))
    return parse(config_class, {k: v for k, v in _mapping(values or {}, name).items() if k not in dropped}, name)


def _mapping(values: Any, where: str) -> dict[str, Any]:
    if not isinstance(values, Mapping):
        raise UserError(f"{where}: must be keys and values, not {values!r}; e.g. {where}.<key>=<value>.")
    return dict(values)
