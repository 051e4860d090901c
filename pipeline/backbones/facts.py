"""What is known of a network beside its weights, where the config may say otherwise: preprocessing and class names."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, get_args

from pipeline.backbones.settings import BackboneConfig
from pipeline.class_lists import class_list
from pipeline.errors import UserError
from pipeline.images.preprocessing import Interpolation, Preprocessing

KEYS = ("size", "mean", "std", "crop", "interpolation")


def preprocessing(config: BackboneConfig, own: Preprocessing) -> Preprocessing:
    """The network's own preprocessing, with what ``config`` says instead.

    Raises:
        UserError: an interpolation that we have not.
    """
    given: dict[str, Any] = {key: getattr(config, key) for key in KEYS if getattr(config, key) is not None}
    result = replace(own, **given)
    if result.interpolation not in get_args(Interpolation):
        raise UserError(
            f"backbone.interpolation: the model's own is '{result.interpolation}'. "
            f"Set one of {', '.join(get_args(Interpolation))}."
        )
    return result


def class_names(config: BackboneConfig, own: tuple[str, ...] | None, count: int, name: str) -> tuple[str, ...] | None:
    """The names of the ``count`` classes of the class head; ``own`` for ``class_list=auto``.

    Raises:
        UserError: an unknown list, or one of another length.
    """
    if config.class_list == "auto":
        return own
    if config.class_list is None:
        return None
    names = class_list(config.class_list, "backbone.class_list")
    if len(names) != count:
        raise UserError(f"backbone.class_list: {len(names)} names, but the class head of {name} has {count}.")
    return names
