"""Frozen backbones: image → embedding and logits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from pipeline.backbones.settings import BackboneConfig
from pipeline.backbones.tap import Tap
from pipeline.config import parse, to_plain
from pipeline.digests import digest
from pipeline.discovery import implementation, module_of
from pipeline.on_demand import on_demand
from pipeline.settings import parse_settings
from pipeline.vision_packages import fitting_torch

if TYPE_CHECKING:
    from torch import Tensor

    from pipeline.backbones.base import Backbone, Group, Network, groups
else:
    __getattr__ = on_demand(__name__, {"base": ("Backbone", "Group", "groups")})

__all__ = [
    "Backbone",
    "Group",
    "groups",
    "make_backbone",
    "make_backbones",
    "network_class",
    "parse_backbone",
    "pinned",
    "uncompiled",
]
SOURCES, WHAT = "pipeline.backbones.sources", "backbone source"


def _source(values: Mapping[str, Any]) -> str:
    """``timm`` unless ``values`` name another."""
    return str(values.get("source", "timm"))


def network_class(values: Mapping[str, Any]) -> type[Network]:
    """The network defined in ``pipeline/backbones/sources/<source>.py``.

    Raises:
        UserError: there is no such source, which lists the valid names; or it needs a torchvision that does not load.
    """
    from pipeline.backbones.base import Network  # brings torch along

    with fitting_torch():
        return implementation(SOURCES, _source(values), WHAT, Network)


def parse_backbone(values: Mapping[str, Any], where: str = "backbone") -> BackboneConfig:
    """The checked config of a backbone, of the class that its source defines; waits for torch only if it must.

    Raises:
        UserError: an unknown source, unknown keys, values out of range or that do not go together.
    """
    module = module_of(SOURCES, _source(values), WHAT)
    config: BackboneConfig = parse_settings(values, where, module, lambda: network_class(values))
    return config


def make_backbone(values: Mapping[str, Any], *, carried: Mapping[str, Tensor] | None = None) -> Backbone:
    """The frozen backbone that ``values`` describe, loaded and on its device.

    Args:
        values: plain values as for :func:`parse_backbone`.
        carried: its state dict, where a release carries the weights; then no other source of weights is needed.

    Raises:
        UserError: wrong values, unknown model, weights that cannot be had or do not fit, no such device or tap.
    """
    from pipeline.backbones.base import Backbone  # brings torch along

    cls = network_class(values)
    config = parse(cls.Config, values, "backbone")
    return Backbone(cls(config, carried), _tap(config))  # type: ignore[call-arg]


def make_backbones(values: Sequence[Mapping[str, Any]]) -> list[Backbone]:
    """Several backbones; those that differ in their tap alone (``layer``, ``pooling``) share one network.

    Raises:
        UserError: as for :func:`make_backbone`.
    """
    from pipeline.backbones.base import Backbone  # brings torch along

    loaded: dict[str, Network] = {}
    backbones = []
    for item in values:
        cls = network_class(item)
        config = parse(cls.Config, item, "backbone")
        plain = {key: value for key, value in to_plain(config).items() if key not in config.of_the_tap}
        mark = digest(plain)
        if mark not in loaded:
            loaded[mark] = cls(config, None)  # type: ignore[call-arg]
        backbones.append(Backbone(loaded[mark], _tap(config)))
    return backbones


def _tap(config: BackboneConfig) -> Tap:
    given = {field.name: getattr(config, field.name) for field in fields(Tap) if hasattr(config, field.name)}
    return Tap(**given)


def pinned(values: Mapping[str, Any], described: Mapping[str, Any]) -> dict[str, Any]:
    """``values`` with each ``auto`` replaced by what it came to mean for the backbone that described itself so."""
    config, switch = parse_backbone(values), {True: "on", False: "off"}
    auto = [key for key in to_plain(config) if getattr(config, key) == "auto" and key in described]
    return {**values, **{key: switch.get(described[key], described[key]) for key in auto}}


def uncompiled(values: Mapping[str, Any]) -> dict[str, Any]:
    """``values`` for serving images by ones and twos: each number of images would be compiled anew."""
    return {**values, "compile": "off"} if hasattr(parse_backbone(values), "compile") else dict(values)
