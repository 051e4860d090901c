"""From a config to a loaded model: which network, which weights, which preprocessing, which class names."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

import timm
import torch
from timm.data.config import resolve_data_config
from timm.data.imagenet_info import ImageNetInfo, infer_imagenet_subset
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn

from pipeline.backbones.settings import BackboneConfig
from pipeline.backbones.weights import load_weights, package_file, state_dict_sha256
from pipeline.class_lists import class_list
from pipeline.errors import UserError
from pipeline.files import read_json, sha256_file
from pipeline.images.preprocessing import Interpolation, Preprocessing

OURS = Path(__file__).parent


@dataclass(frozen=True, kw_only=True)
class Built:
    """A model with its weights, and what is known of it."""

    model: nn.Module
    weights_sha256: str
    preprocessing: Preprocessing
    class_names: tuple[str, ...] | None


def build(config: BackboneConfig, carried: Mapping[str, Tensor] | None) -> Built:
    """The model that ``config`` describes.

    Args:
        config: which backbone.
        carried: its weights, where a release carries them; then the config's own source of weights is not touched.

    Raises:
        UserError: unknown model, weights that cannot be had or do not fit, values that do not fit the model.
    """
    if config.weights == "ours":
        built = _ours(config, carried)
    else:
        model, sha256 = _timm(config, carried)
        built = Built(
            model=model,
            weights_sha256=sha256,
            preprocessing=_preprocessing(model),
            class_names=_imagenet(config, model),
        )
    return replace(
        built,
        preprocessing=_overridden(built.preprocessing, config),
        class_names=_class_names(config, built),
    )


def _timm(config: BackboneConfig, carried: Mapping[str, Tensor] | None) -> tuple[nn.Module, str]:
    model = _create(config, pretrained=config.weights == "pretrained" and carried is None)
    if carried is not None:
        model.load_state_dict(carried)
    elif config.weights in ("file", "package"):
        path = config.path if config.path is not None else package_file(str(config.package))
        load_weights(model, path, match=config.match)
        return model, sha256_file(path)
    return model, state_dict_sha256(model.state_dict())


def _create(config: BackboneConfig, *, pretrained: bool) -> nn.Module:
    if not timm.is_model(config.model):
        raise UserError(
            f"backbone.model: timm has no model '{config.model}'.{_nearest(config.model, timm.list_models())}"
        )
    try:
        native = timm.get_pretrained_cfg(config.model)
    except RuntimeError as error:  # an unknown tag
        tagged = timm.list_pretrained(f"{config.model.split('.')[0]}.*")
        raise UserError(f"backbone.model: {error}{_nearest(config.model, tagged)}") from error
    options: dict[str, Any] = {} if config.num_classes is None else {"num_classes": config.num_classes}
    if config.size is not None and native is not None and native.fixed_input_size:
        options["img_size"] = config.size  # convolutional networks take any size, these are built for one
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(config.seed)
            model: nn.Module = timm.create_model(config.model, pretrained=pretrained, **options)
    except (RuntimeError, OSError) as error:
        if not pretrained:
            raise
        raise UserError(
            f"backbone: the pretrained weights of '{config.model}' cannot be had ({str(error).splitlines()[0]}). "
            "Where there is no network, copy the file here and set backbone.weights=file backbone.path=<file>."
        ) from error
    return model


def _nearest(name: str, valid: list[str]) -> str:
    nearest = difflib.get_close_matches(name, valid, n=3)
    return f" Did you mean {' or '.join(nearest)}?" if nearest else " See timm.list_models()."


def _ours(config: BackboneConfig, carried: Mapping[str, Tensor] | None) -> Built:
    valid = sorted(path.stem for path in OURS.glob("*.json"))
    if config.model not in valid:
        raise UserError(f"backbone.model: no model '{config.model}' of ours. Valid: {', '.join(valid)}.")
    record, path = read_json(OURS / f"{config.model}.json"), OURS / f"{config.model}.safetensors"
    if config.num_classes not in (None, record["architecture"]["num_classes"]):
        raise UserError(f"backbone.num_classes: {config.model} has {record['architecture']['num_classes']} classes.")
    model = VisionTransformer(**record["architecture"])
    if carried is not None:
        model.load_state_dict(carried)
    else:
        if sha256_file(path) != record["sha256"]:
            raise UserError(f"{path} is not the file its record describes. Install Hedgerow again.")
        load_weights(model, path, match="names")
    plain = record["preprocessing"]
    return Built(
        model=model,
        weights_sha256=record["sha256"],
        preprocessing=Preprocessing(**{**plain, "mean": tuple(plain["mean"]), "std": tuple(plain["std"])}),
        class_names=tuple(record["class_names"]),
    )


def _preprocessing(model: nn.Module) -> Preprocessing:
    data = resolve_data_config({}, model=model)
    return Preprocessing(
        size=data["input_size"][-1],
        mean=tuple(data["mean"]),
        std=tuple(data["std"]),
        crop=data["crop_pct"],
        interpolation=data["interpolation"],
    )


def _overridden(own: Preprocessing, config: BackboneConfig) -> Preprocessing:
    keys = ("size", "mean", "std", "crop", "interpolation")
    given = {key: getattr(config, key) for key in keys if getattr(config, key) is not None}
    result = replace(own, **given)
    if result.interpolation not in get_args(Interpolation):
        raise UserError(
            f"backbone.interpolation: the model's own is '{result.interpolation}'. "
            f"Set one of {', '.join(get_args(Interpolation))}."
        )
    return result


def _imagenet(config: BackboneConfig, model: nn.Module) -> tuple[str, ...] | None:
    """WordNet ids, for timm's own weights with as many classes as a subset of ImageNet has."""
    subset = infer_imagenet_subset(model) if config.weights == "pretrained" and config.num_classes is None else None
    return tuple(ImageNetInfo(subset).label_names()) if subset and model.num_classes else None


def _class_names(config: BackboneConfig, built: Built) -> tuple[str, ...] | None:
    choice, count = config.class_list, int(built.model.num_classes)  # type: ignore[arg-type]
    if choice == "auto":
        return built.class_names
    if choice is None:
        return None
    names = class_list(choice, "backbone.class_list")
    if len(names) != count:
        raise UserError(f"backbone.class_list: {len(names)} names, but the class head of {config.model} has {count}.")
    return names
