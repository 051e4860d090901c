"""Which device a config means."""

from __future__ import annotations

import torch

from pipeline.errors import UserError


def device_named(name: str, key: str) -> torch.device:
    """The device called ``name``; ``auto`` is a GPU if there is one, else the CPU.

    Args:
        name: as a config has it.
        key: of the config, for the message.

    Raises:
        UserError: there is no such device, or not here.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise UserError(f"{key}: '{name}' is no device. Valid: auto, cpu, cuda, cuda:<index>.") from None
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise UserError(f"{key}: '{name}' is not there; torch sees {torch.cuda.device_count()} GPUs.")
    try:
        torch.empty(0, device=device).cpu()  # of what is on the device meta nothing comes back
    except (RuntimeError, AssertionError) as error:  # torch asserts what it was built with
        raise UserError(f"{key}: '{name}' cannot be used here ({str(error).splitlines()[0]}).") from error
    return device
