"""The state of a run between two steps: one safetensors file, replaced atomically; no pickle.

It holds the parameters and buffers of every member, the moments of the optimiser, averaged weights, the losses that are
not logged yet, and in the file's metadata the step and what run it is of. That is all there is: the schedule, the order
of rows and all draws are functions of the seed and the step.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError, safe_open

from pipeline.digests import canonical_json, difference
from pipeline.errors import UserError
from pipeline.fetching import local_copy
from pipeline.files import read_bytes, sweep_partials, write_bytes
from pipeline.places import Place

if TYPE_CHECKING:  # how far a run is, is known without torch
    from torch import Tensor

    from pipeline.world import World

STATE = "checkpoint.safetensors"
LOSSES = "losses_SMK"


def save_state(
    folder: Place,
    tensors: Mapping[str, Tensor],
    step: int,
    meaning: Mapping[str, Any],
    losses_SMK: Tensor | None = None,
) -> None:
    """Write the state after ``step`` steps; the file before it is replaced once this one is whole.

    Args:
        folder: of the run.
        tensors: of heads and optimiser, by name.
        step: how many steps are done.
        meaning: of the run.
        losses_SMK: of the steps since the last line of the log, if there are any.
    """
    from safetensors.torch import save

    tensors = dict(tensors) if losses_SMK is None else {**tensors, LOSSES: losses_SMK}
    metadata = {"step": str(step), "meaning": canonical_json(meaning)}
    sweep_partials(folder)
    write_bytes(folder / STATE, save({k: v.detach().cpu().contiguous() for k, v in tensors.items()}, metadata))


def load_state(folder: Place, meaning: Mapping[str, Any], world: World) -> tuple[int, dict[str, Tensor], Tensor | None]:
    """The state that lies in ``folder``.

    The first process reads the file and hands its bytes to all others, so that all go on at the same step.

    Returns:
        The number of steps done, and the tensors and the losses that :func:`save_state` was given; 0 and no tensors
        if there is no state.

    Raises:
        UserError: the state is of another run (says what differs), or its file is damaged.
    """
    from safetensors.torch import load

    path = folder / STATE
    data = None
    with world.together():
        if world.first and path.exists():
            with local_copy(path) as local:
                data = read_bytes(local)
    data = world.share(data)
    if data is None:
        return 0, {}, None
    with _damage(path):
        tensors = load(data)
    metadata = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])["__metadata__"]
    lines = difference(json.loads(metadata["meaning"]), json.loads(canonical_json(meaning)))
    if lines:
        raise UserError(
            f"train_head: {path} is the checkpoint of another run (old → new):\n  " + "\n  ".join(lines) + "\n"
            "Take another output folder, or the old values, or remove the checkpoint to start again."
        )
    losses_SMK = tensors.pop(LOSSES, None)
    return int(metadata["step"]), tensors, losses_SMK


def state_step(folder: Place) -> int:
    """How many steps the state in ``folder`` has behind it; 0 if there is none.

    Raises:
        UserError: its file is damaged.
    """
    path = folder / STATE
    if not path.exists():
        return 0
    with _damage(path), local_copy(path) as local, safe_open(local, framework="numpy") as file:
        return int(file.metadata()["step"])


def remove_state(folder: Place) -> None:
    """The run is over and its heads are saved."""
    (folder / STATE).unlink(missing_ok=True)


@contextmanager
def _damage(path: Place) -> Iterator[None]:
    try:
        yield
    except SafetensorError as error:
        raise UserError(f"{path}: the checkpoint is damaged ({error}). Remove it: training starts again.") from error
