"""Models of torchvision, with their own transforms and class heads.

Shapes: B images, N tokens, D width, C classes.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import pydantic
import torch
import torchvision.models
from pydantic import Field
from torch import Tensor, nn
from torchvision.models import VisionTransformer, WeightsEnum

from pipeline.backbones import facts
from pipeline.backbones.modules import ModuleNetwork
from pipeline.backbones.settings import ModuleConfig
from pipeline.backbones.tap import LAST, Tap
from pipeline.backbones.weights import load_weights, state_dict_sha256
from pipeline.class_lists import class_list
from pipeline.config import config
from pipeline.discovery import unknown_name
from pipeline.errors import UserError
from pipeline.files import sha256_file
from pipeline.images.preprocessing import Preprocessing
from pipeline.places import LocalPath

NUMBERED = ("layer1", "layer2", "layer3", "layer4")


class Features(NamedTuple):
    """What the classifier reads, and the tokens before pooling, of Vision Transformers."""

    embedding_BD: Tensor
    tokens_BND: Tensor | None


class TorchvisionNetwork(ModuleNetwork):
    """The embedding is what the model's last linear layer reads; of Vision Transformers the tokens can be pooled."""

    @config
    class Config(ModuleConfig):
        """A torchvision model with its weights."""

        # Name of a torchvision model for classification, alone or with the tag of its weights: resnet50.IMAGENET1K_V2.
        # Without a tag: torchvision's default. The tag's transforms are those of random and file weights too.
        model: str
        # pretrained: torchvision's, from its server or cache. random: drawn from `seed`. file: `path`.
        weights: Literal["pretrained", "random", "file"] = "pretrained"
        # weights=file: .safetensors, .pth or .pt, a state dict; read without pickled code.
        path: LocalPath | None = None
        # weights=random: of the drawing.
        seed: int = 0
        # Classes of the class head; null: 1,000. There must be one, its input is the embedding.
        num_classes: Annotated[int, Field(ge=1)] | None = None

        @pydantic.model_validator(mode="after")
        def _one_source(self) -> TorchvisionNetwork.Config:
            if (self.path is not None) != (self.weights == "file"):
                raise ValueError("weights=file needs `path`, and `path` goes with weights=file only")
            return self

    def __init__(self, config: Config, carried: Mapping[str, Tensor] | None) -> None:
        choice = _choice(config.model)
        model = _create(config, choice, pretrained=config.weights == "pretrained" and carried is None)
        if carried is not None:
            model.load_state_dict(carried)
        elif config.path is not None:
            load_weights(model, config.path, match="names")
        linear = [(name, module) for name, module in model.named_modules() if isinstance(module, nn.Linear)]
        if not linear:
            raise UserError(
                f"backbone.model: {config.model} has no linear layer, so nothing says what its embedding is."
            )
        self._place, self._linear = linear[-1]
        self._weights = config.weights
        count = self._linear.out_features
        named = config.weights == "pretrained" and config.num_classes is None
        sha256 = state_dict_sha256(model.state_dict()) if config.path is None else _sha256(config.path, carried)
        model.set_submodule(self._place, nn.Identity())
        self._linear.eval().requires_grad_(False)
        super().__init__(
            config,
            name=config.model,
            model=model,
            weights_sha256=sha256,
            preprocessing=facts.preprocessing(config, _preprocessing(choice)),
            class_names=facts.class_names(config, class_list("imagenet1k", "") if named else None, count, config.model),
        )

    def describe(self) -> Mapping[str, Any]:
        """Of the weights also where they are from."""
        return {**super().describe(), "weights": self._weights}

    @classmethod
    def licence(cls, config: Config) -> tuple[str, str]:
        """torchvision states none for its weights, but for a few."""
        return "unknown", "nobody (torchvision's licence is of its code)"

    def state_dict(self) -> Mapping[str, Tensor]:
        """The weights, on the CPU, the class head's among them."""
        with self._whole():
            return super().state_dict()

    def last_linear(self) -> nn.Module | None:
        """Kept apart from the model, which so gives what it reads."""
        return self._linear.to(self.device)

    def own_logits(self, images_BCHW: Tensor) -> Tensor:
        """Of the whole model."""
        with self._whole():
            return super().own_logits(images_BCHW)

    @contextmanager
    def _whole(self) -> Iterator[None]:
        self.model.set_submodule(self._place, self._linear)
        try:
            yield
        finally:
            self.model.set_submodule(self._place, nn.Identity())

    def layers(self) -> list[nn.Module]:
        """Blocks of a transformer, stages of a convolutional network."""
        if isinstance(self.model, VisionTransformer):
            return list(self.model.encoder.layers)
        if isinstance(features := getattr(self.model, "features", None), nn.Sequential):
            return list(features)
        return [getattr(self.model, name) for name in NUMBERED if hasattr(self.model, name)]

    def plainest(self, tap: Tap) -> Tap:
        """There is one layer to tap."""
        return tap

    def features(self, images_BCHW: Tensor, layers: Collection[int]) -> Mapping[int, Features]:
        """One pass; of Vision Transformers the tokens on the way."""
        seen: list[Tensor] = []
        encoder = self.model.encoder if isinstance(self.model, VisionTransformer) else None
        hook = None if encoder is None else encoder.register_forward_hook(lambda _, __, output: seen.append(output))
        try:
            embedding_BD = self.model(images_BCHW)
        finally:
            if hook is not None:
                hook.remove()
        return {LAST: Features(embedding_BD, seen[0] if seen else None)}

    def pooled(self, features: Features, tap: Tap) -> Tensor:
        """As the model does, or by token."""
        if tap.pooling == "auto":
            return features.embedding_BD
        if features.tokens_BND is None:
            raise UserError(
                f"backbone.pooling={tap.pooling}: torchvision's {self.name} is pooled by its own head. Valid: auto. "
                "(With source=timm other poolings can be had.)"
            )
        class_BD, mean_BD = features.tokens_BND[:, 0], features.tokens_BND[:, 1:].mean(dim=1)
        return {"cls": class_BD, "mean": mean_BD, "cls+mean": torch.cat([class_BD, mean_BD], dim=1)}[tap.pooling]


def _sha256(path: Path, carried: Mapping[str, Tensor] | None) -> str:
    return sha256_file(path) if carried is None else state_dict_sha256(carried)


def _choice(model: str) -> WeightsEnum:
    """The weights that a name means."""
    name, _, tag = model.partition(".")
    valid = torchvision.models.list_models(module=torchvision.models)
    if name not in valid:
        raise UserError(f"backbone.model: {unknown_name('torchvision model', name, valid)}")
    weights = torchvision.models.get_model_weights(name)
    if tag and tag not in weights.__members__:
        raise UserError(f"backbone.model: {unknown_name(f'tag of {name}', tag, weights.__members__)}")
    return weights[tag] if tag else weights.DEFAULT


def _create(config: TorchvisionNetwork.Config, choice: WeightsEnum, *, pretrained: bool) -> nn.Module:
    name = config.model.partition(".")[0]
    options: dict[str, Any] = {} if config.num_classes is None else {"num_classes": config.num_classes}
    if config.size is not None and name.startswith("vit_"):
        options["image_size"] = config.size  # other networks take any size
    try:
        with warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
            warnings.simplefilter("ignore", FutureWarning)  # on how two old networks draw their weights
            torch.manual_seed(config.seed)
            model: nn.Module = torchvision.models.get_model(name, weights=choice if pretrained else None, **options)
    except (OSError, RuntimeError, ValueError) as error:
        if not pretrained:
            raise
        raise UserError(
            f"backbone: the pretrained weights of '{config.model}' cannot be had ({str(error).splitlines()[0]}). "
            f"Where there is no network, copy {choice.url} here and set backbone.weights=file backbone.path=<file>; "
            "or, for a released model, into ~/.cache/torch/hub/checkpoints."
        ) from error
    return model


def _preprocessing(choice: WeightsEnum) -> Preprocessing:
    said = choice.transforms()
    size, resized = said.crop_size[0], said.resize_size[0]
    crop = size / resized
    if math.floor(size / crop) != resized:  # rounding made the quotient a little too small
        crop = math.nextafter(crop, 0)
    return Preprocessing(
        size=size, mean=tuple(said.mean), std=tuple(said.std), crop=crop, interpolation=said.interpolation.value
    )
