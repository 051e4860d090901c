"""What every backbone is told, whatever makes its network; each source adds what it needs."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from pipeline.backbones.tap import Pooling
from pipeline.config import config
from pipeline.images.preprocessing import Interpolation

Channels = tuple[float, float, float]


@config
class BackboneConfig:
    """One frozen backbone. Whatever is null is the model's own value."""

    operational: ClassVar[frozenset[str]] = frozenset({"device"})
    of_the_tap: ClassVar[frozenset[str]] = frozenset(
        {"layer", "pooling"}
    )  # backbones that differ there share a network

    # What makes the network: timm, torchvision, torchscript, export, onnx (a file of pipeline/backbones/sources).
    source: str = "timm"
    # One vector of an image's tokens or places. auto: what the model's own head does. cls: the class token. mean: of
    # the patch tokens, without class and register tokens; in convolutional networks of all places. cls+mean: both.
    pooling: Pooling = "auto"
    # Names of its classes, in order: auto (WordNet ids of known ImageNet models, or of ours), a known list of WordNet
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
    # auto: the first CUDA device, else the CPU.
    device: str = "auto"


@config
class ModuleConfig(BackboneConfig):
    """A network made of torch modules, which can be computed in several ways."""

    # auto: bf16 on GPUs that have it and on CPUs with AMX, else fp32.
    compute: Literal["auto", "fp32", "bf16"] = "auto"
    # Memory order of images and convolutions; auto: on for convolutional networks.
    channels_last: Literal["auto", "on", "off"] = "auto"
    # torch.compile of each layer; auto: on for CUDA, off on the CPU.
    compile: Literal["auto", "on", "off"] = "auto"
