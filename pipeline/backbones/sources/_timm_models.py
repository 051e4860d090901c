"""From a config to a model of timm or of ours, with its weights, and what it says of itself.

timm is imported where a model is made: it takes seconds, and most commands make none.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from pipeline.backbones.packages import package_file
from pipeline.backbones.weights import load_weights, state_dict_sha256, weights_file_sha256
from pipeline.errors import UserError
from pipeline.files import read_json, sha256_file
from pipeline.images.preprocessing import Preprocessing
from pipeline.vision_packages import fitting_torch

if TYPE_CHECKING:
    from pipeline.backbones.sources.timm import TimmNetwork

OURS = Path(__file__).parent.parent


@dataclass(frozen=True, kw_only=True)
class Built:
    """A model with its weights, and what it says of itself."""

    model: nn.Module
    weights_sha256: str
    preprocessing: Preprocessing
    class_names: tuple[str, ...] | None


def build(config: TimmNetwork.Config, carried: Mapping[str, Tensor] | None) -> Built:
    """The model that ``config`` describes.

    Args:
        config: which backbone.
        carried: its weights, where a release carries them; then the config's own source of weights is not touched.

    Raises:
        UserError: unknown model, weights that cannot be had or do not fit, values that do not fit the model.
    """
    if config.weights == "ours":
        return _ours(config, carried)
    model, sha256 = _timm(config, carried)
    return Built(
        model=model,
        weights_sha256=sha256,
        preprocessing=_preprocessing(model),
        class_names=_imagenet(config, model),
    )


def _timm(config: TimmNetwork.Config, carried: Mapping[str, Tensor] | None) -> tuple[nn.Module, str]:
    model = _create(config, pretrained=config.weights == "pretrained" and carried is None)
    if carried is not None:
        model.load_state_dict(carried)
    elif config.weights in ("file", "package"):
        path = config.path if config.path is not None else package_file(str(config.package))
        load_weights(model, path, match=config.match)
        return model, weights_file_sha256(path)
    return model, state_dict_sha256(model.state_dict())


def _create(config: TimmNetwork.Config, *, pretrained: bool) -> nn.Module:
    with fitting_torch():
        import timm

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
            "Where there is no network, copy the file here and set backbone.weights=file backbone.path=<file>; or, for "
            "a released model, copy ~/.cache/huggingface here from a machine that has loaded it."
        ) from error
    return model


def _nearest(name: str, valid: list[str]) -> str:
    nearest = difflib.get_close_matches(name, valid, n=3)
    return f" Did you mean {' or '.join(nearest)}?" if nearest else " See timm.list_models()."


def _ours(config: TimmNetwork.Config, carried: Mapping[str, Tensor] | None) -> Built:
    with fitting_torch():
        from timm.models.vision_transformer import VisionTransformer

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
    from timm.data.config import resolve_data_config

    data = resolve_data_config({}, model=model)
    return Preprocessing(
        size=data["input_size"][-1],
        mean=tuple(data["mean"]),
        std=tuple(data["std"]),
        crop=data["crop_pct"],
        interpolation=data["interpolation"],
    )


def _imagenet(config: TimmNetwork.Config, model: nn.Module) -> tuple[str, ...] | None:
    """WordNet ids, for timm's own weights with as many classes as a subset of ImageNet has."""
    from timm.data.imagenet_info import ImageNetInfo, infer_imagenet_subset

    subset = infer_imagenet_subset(model) if config.weights == "pretrained" and config.num_classes is None else None
    return tuple(ImageNetInfo(subset).label_names()) if subset and model.num_classes else None
