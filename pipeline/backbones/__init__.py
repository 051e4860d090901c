"""Frozen backbones: image → embedding and logits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from pipeline.backbones.base import Backbone
from pipeline.backbones.build import build
from pipeline.backbones.settings import BackboneConfig
from pipeline.backbones.timm_backbone import TimmBackbone
from pipeline.config import parse


def parse_backbone(values: Mapping[str, Any], where: str = "backbone") -> BackboneConfig:
    """The checked config of a backbone; reads nothing else.

    Raises:
        UserError: unknown keys, values out of range, a source of weights without its key.
    """
    return parse(BackboneConfig, values, where)


def make_backbone(values: Mapping[str, Any], *, carried: Mapping[str, Tensor] | None = None) -> Backbone:
    """The frozen backbone that ``values`` describe, loaded and on its device.

    Args:
        values: plain values as for :class:`BackboneConfig`.
        carried: its state dict, where a release carries the weights; then no other source of weights is needed.

    Raises:
        UserError: wrong values, unknown model, weights that cannot be had or do not fit, no such device.
    """
    config = parse_backbone(values)
    return TimmBackbone(config, build(config, carried))
