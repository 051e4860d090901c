"""The state of a run between two steps: one safetensors file, replaced atomically; no pickle.

It holds the parameters and buffers of every member, the moments of their optimisers, and in the file's metadata the
step and what run it is of. That is all there is: the schedule, the order of rows and all draws are functions of the
seed and the step.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from pipeline.digests import canonical_json, difference
from pipeline.errors import UserError
from pipeline.fetching import local_copy
from pipeline.files import sweep_partials, write_bytes
from pipeline.places import Place
from pipeline.training.members import Member

STATE = "checkpoint.safetensors"


def save_state(folder: Place, members: Sequence[Member], step: int, meaning: Mapping[str, Any]) -> None:
    """Write the state after ``step`` steps; the file before it is replaced once this one is whole."""
    tensors: dict[str, Tensor] = {}
    for place, member in enumerate(members):
        tensors |= {f"{place}.head.{name}": value for name, value in member.head.state_dict().items()}
        for parameter, state in member.optimizer.state_dict()["state"].items():
            tensors |= {f"{place}.optimizer.{parameter}.{name}": value for name, value in state.items()}
    metadata = {"step": str(step), "meaning": canonical_json(meaning)}
    sweep_partials(folder)
    write_bytes(folder / STATE, save({k: v.detach().cpu().contiguous() for k, v in tensors.items()}, metadata))


def load_state(folder: Place, members: Sequence[Member], meaning: Mapping[str, Any]) -> int:
    """Put the members into the state that lies in ``folder``; the number of steps done, 0 if there is none.

    Raises:
        UserError: the state is of another run (says what differs), or its file is damaged.
    """
    path = folder / STATE
    if not path.exists():
        return 0
    try:
        with local_copy(path) as local, safe_open(local, framework="pt") as file:
            metadata = file.metadata()
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a mapping)
    except SafetensorError as error:
        raise UserError(f"{path}: the checkpoint is damaged ({error}). Remove it: training starts again.") from error
    lines = difference(json.loads(metadata["meaning"]), json.loads(canonical_json(meaning)))
    if lines:
        raise UserError(
            f"train_head: {path} is the checkpoint of another run (old → new):\n  " + "\n  ".join(lines) + "\n"
            "Take another output folder, or the old values, or remove the checkpoint to start again."
        )
    for place, member in enumerate(members):
        member.head.load_state_dict(_below(tensors, f"{place}.head."))
        states: dict[int, dict[str, Tensor]] = {}
        for name, value in _below(tensors, f"{place}.optimizer.").items():
            parameter, _, key = name.partition(".")
            states.setdefault(int(parameter), {})[key] = value
        groups = member.optimizer.state_dict()["param_groups"]
        member.optimizer.load_state_dict({"state": states, "param_groups": groups})
    return int(metadata["step"])


def state_step(folder: Place) -> int:
    """How many steps the state in ``folder`` has behind it; 0 if there is none."""
    path = folder / STATE
    if not path.exists():
        return 0
    with local_copy(path) as local, safe_open(local, framework="pt") as file:
        return int(file.metadata()["step"])


def remove_state(folder: Place) -> None:
    """The run is over and its heads are saved."""
    (folder / STATE).unlink(missing_ok=True)


def _below(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, torch.Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
