"""What networks that come as one file have in common: the graph is fixed, so they are run as they are.

Shapes: B images, N tokens, D width, H × W places.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Annotated, Any

import pydantic
import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import pad

from pipeline.backbones import facts
from pipeline.backbones.base import Network, Tried
from pipeline.backbones.settings import BackboneConfig
from pipeline.backbones.tap import Tap
from pipeline.config import config, to_plain
from pipeline.devices import device_named
from pipeline.errors import UserError
from pipeline.heads.base import LinearClassifier
from pipeline.images.preprocessing import Preprocessing
from pipeline.places import LocalPath


@config
class FileConfig(BackboneConfig):
    """A network in a file. Its preprocessing must be given: size, mean, std, crop, interpolation."""

    # The file.
    path: LocalPath
    # Which output is the representation, where there are several: its number from 0, or its name.
    output: int | str | None = None
    # Outputs of tokens: how many stand before those of the patches (class token first, then registers).
    prefix_tokens: Annotated[int, Field(ge=0)] = 1

    @pydantic.model_validator(mode="after")
    def _is_preprocessed(self) -> FileConfig:
        if missing := [key for key in facts.KEYS if getattr(self, key) is None]:
            raise ValueError(f"a file does not say what its network was trained with: set {', '.join(missing)}")
        return self


class FileNetwork(Network):
    """Its output is one vector an image, or tokens or a map that are pooled. It has no classifier.

    Attributes:
        batch: the number of images that the file insists on; None: any.
    """

    batch: int | None = None

    def __init__(self, config: FileConfig, carried: Mapping[str, Tensor] | None) -> None:
        if not config.path.is_file():
            raise UserError(f"backbone.path: no file at {config.path}.")
        self.config: Any = config
        self.name = config.path.stem
        self.preprocessing = Preprocessing(**{key: getattr(config, key) for key in facts.KEYS})
        self.class_names = facts.class_names(config, None, 0, self.name)
        self.weights_sha256 = self.file_sha256(config.path)
        self.device = device_named(config.device, "backbone.device")
        self.open()

    @abstractmethod
    def open(self) -> None:
        """Load the file onto the device and find out ``batch``.

        Raises:
            UserError: it cannot be loaded.
        """

    @abstractmethod
    def run(self, images_BCHW: Tensor) -> Mapping[str, Tensor]:
        """All outputs by name, for a batch of float32 images on the device."""

    @torch.no_grad()
    def embed(self, images_BCHW: Tensor, taps: Sequence[Tap]) -> list[Tensor]:
        """In batches of the size that the file insists on, the last one filled up with zeros."""
        images_BCHW = images_BCHW.to(self.device, torch.float32)
        size = self.batch or len(images_BCHW)
        pieces = [self._run_padded(piece, size) for piece in images_BCHW.split(size)]
        features = torch.cat([output[: len(piece)] for piece, output in pieces])
        return [self._pooled(features, tap).float() for tap in taps]

    def _run_padded(self, piece_BCHW: Tensor, size: int) -> tuple[Tensor, Tensor]:
        padding = (0, 0, 0, 0, 0, 0, 0, size - len(piece_BCHW))
        return piece_BCHW, self._chosen(self.run(pad(piece_BCHW, padding)))

    def try_tap(self, tap: Tap) -> Tried:
        """Look at it on two images: one a batch would hide that the batch is not the first axis."""
        (embedding_BD,) = self.embed(self._images, [tap])
        return Tried(tap=tap, width=embedding_BD.shape[1], feeds_classifier=False)

    @cached_property
    def _images(self) -> Tensor:
        size = self.preprocessing.size
        return torch.rand(2, 3, size, size, generator=torch.Generator().manual_seed(0))

    def _chosen(self, outputs: Mapping[str, Tensor]) -> Tensor:
        names, choice = list(outputs), self.config.output
        if choice is None and len(names) == 1:
            return outputs[names[0]]
        if isinstance(choice, int) and 0 <= choice < len(names):
            return outputs[names[choice]]
        if isinstance(choice, str) and choice in outputs:
            return outputs[choice]
        shown = ", ".join(f"{i}: '{name}' {tuple(outputs[name].shape)}" for i, name in enumerate(names))
        raise UserError(f"backbone.output={choice}: {self.config.path.name} has these outputs, choose one: {shown}.")

    def _pooled(self, features: Tensor, tap: Tap) -> Tensor:
        pooling, prefix = tap.pooling, self.config.prefix_tokens
        shape = tuple(features.shape)
        valid = {2: ("auto",), 3: ("mean", *(("cls", "cls+mean") if prefix else ())), 4: ("auto", "mean")}
        if pooling not in valid.get(features.ndim, ()):
            raise UserError(
                f"backbone.pooling={pooling}: {self.config.path.name} gives features of shape {shape}. "
                f"Valid: {', '.join(valid.get(features.ndim, ['no pooling, so choose another output']))}."
            )
        if features.ndim == 2:
            return features
        if features.ndim == 4:
            return features.mean(dim=(2, 3))
        parts = [features[:, 0]] if "cls" in pooling else []
        return torch.cat([*parts, features[:, prefix:].mean(dim=1)] if "mean" in pooling else parts, dim=1)

    def classifier(self) -> LinearClassifier | None:
        """None: what a graph ends in is not known."""
        return None

    def describe(self) -> Mapping[str, Any]:
        """What decides the embedding, as plain values."""
        return {
            "name": self.name,
            "source": self.config.source,
            "weights_sha256": self.weights_sha256,
            "preprocessing": to_plain(self.preprocessing),
            "output": self.config.output,
            "prefix_tokens": self.config.prefix_tokens,
        }

    def state_dict(self) -> Mapping[str, Tensor]:
        """Not to be had: without the file the weights say nothing."""
        raise UserError(
            f"release: a backbone of source={self.config.source} cannot be carried in a bundle, for its weights say "
            "nothing without its file. Set release.include_backbone=no, and pass the file on beside the bundle."
        )

    def moved(self, device: str) -> FileNetwork:
        """Opened there anew: what it is lies in the file.

        Raises:
            UserError: as when it is made, or the file is not what it was.
        """
        path = self.config.path
        if path.is_file() and self.file_sha256(path) != self.weights_sha256:
            raise UserError(f"backbone.path: {path} is another file than the one that was loaded.")
        return type(self)(replace(self.config, device=device), None)


def by_name(result: Any) -> dict[str, Tensor]:
    """What a torch graph returns (a tensor, a tuple, a list, a dict) as outputs with names."""
    if isinstance(result, Tensor):
        return {"0": result}
    items = result.items() if isinstance(result, Mapping) else enumerate(result)
    return {str(name): value for name, value in items if isinstance(value, Tensor)}
