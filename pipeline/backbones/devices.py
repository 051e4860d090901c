"""What ``auto`` means on a device."""

from __future__ import annotations

import torch
from torch import nn

from pipeline.errors import UserError


def compute_of(choice: str, device: torch.device) -> str:
    """``fp32`` or ``bf16``; ``auto`` is bf16 on GPUs that have it and on CPUs with AMX."""
    if choice != "auto":
        return choice
    if device.type == "cuda":
        return "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "fp32"
    # Without AMX bf16 is emulated, 30 times slower than fp32 on a CPU with AVX2 only. Nor do units of AVX-512 gain: on
    # a Xeon that has them and no AMX, ViT-S/16 makes .6, ResNet-50 .7 and EfficientNet-Lite0 .9 of the images a second
    # that it makes in fp32 (python -m benchmarks.forward_rates --compute bf16, and fp32).
    return "bf16" if _cpu_has_amx() else "fp32"


def channels_last_of(choice: str, model: nn.Module) -> bool:
    """Whether images and convolutions lie channels-last; ``auto``: in convolutional networks."""
    if choice != "auto":
        return choice == "on"
    # a Vision Transformer has one convolution, its patch embedding, and gains nothing
    return sum(isinstance(module, nn.Conv2d) for module in model.modules()) > 1


def compiled_of(choice: str, device: torch.device, layers: list[nn.Module], name: str) -> bool:
    """Whether the layers are compiled; ``auto``: on CUDA, where the network has layers we know.

    Raises:
        UserError: ``on``, and we know no layers of it.
    """
    if choice == "on" and not layers:
        raise UserError(
            f"backbone.compile=on: {name} has no list of layers that could be compiled one by one. "
            "Set backbone.compile=off."
        )
    return choice == "on" or (choice == "auto" and device.type == "cuda" and bool(layers))


def _cpu_has_amx() -> bool:
    if not hasattr(torch.cpu, "get_capabilities"):  # torch 2.10
        return torch.cpu._is_amx_tile_supported()
    return bool(torch.cpu.get_capabilities().get("amx_bf16"))
