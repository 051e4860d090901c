"""The state of a run between two steps: one safetensors file, replaced atomically; no pickle.

It holds the parameters and buffers of every member, the moments of the optimiser, averaged weights, the losses that are
not logged yet, and in the file's metadata the step, what run it is of, and a digest of all this. That is all there is:
the schedule, the order of rows and all draws are functions of the seed and the step.

The state before the last one is kept beside it: if the last one is damaged, a run loses what lies between the two.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError, safe_open

from pipeline.digests import canonical_json, difference, digest
from pipeline.errors import DamagedError, UserError
from pipeline.fetching import local_copy
from pipeline.files import move_file, read_bytes, sweep_partials, write_bytes
from pipeline.places import Place
from pipeline.progress import Progress
from pipeline.sealed import SEAL

if TYPE_CHECKING:  # how far a run is, is known without torch
    from torch import Tensor

    from pipeline.world import World

STATE, PREVIOUS = "checkpoint.safetensors", "checkpoint.previous.safetensors"
LOSSES = "losses_SMK"


def save_state(
    folder: Place,
    tensors: Mapping[str, Tensor],
    step: int,
    meaning: Mapping[str, Any],
    losses_SMK: Tensor | None = None,
) -> None:
    """Write the state after ``step`` steps; the one before it stays, and the one before that goes.

    Args:
        folder: of the run.
        tensors: of heads and optimiser, by name.
        step: how many steps are done.
        meaning: of the run.
        losses_SMK: of the steps since the last line of the log, if there are any.
    """
    from safetensors.torch import save

    tensors = dict(tensors) if losses_SMK is None else {**tensors, LOSSES: losses_SMK}
    tensors = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
    metadata = {"step": str(step), "meaning": canonical_json(meaning)}
    data = save(tensors, {**metadata, SEAL: _seal(tensors, metadata)})
    sweep_partials(folder)
    if (folder / STATE).exists():
        move_file(folder / STATE, folder / PREVIOUS)  # first, so that there never have to be three on the disk
    write_bytes(folder / STATE, data)


def load_state(
    folder: Place, meaning: Mapping[str, Any], world: World, progress: Progress
) -> tuple[int, dict[str, Tensor], Tensor | None]:
    """The last sound state that lies in ``folder``; a damaged one is removed.

    The first process reads the file and hands its bytes to all others, so that all go on at the same step.

    Args:
        folder: of the run.
        meaning: of the run.
        world: all its processes call this.
        progress: told which file was damaged, and where the run goes on.

    Returns:
        The number of steps done, and the tensors and the losses that :func:`save_state` was given; 0 and no tensors
        if there is no sound state.

    Raises:
        UserError: the state is of another run; says what differs.
    """
    data = None
    with world.together():
        if world.first:
            data = _last_sound(folder, progress)
    data = world.share(data)
    if data is None:
        return 0, {}, None
    state = _read(data)
    lines = difference(state.meaning, json.loads(canonical_json(meaning)))
    if lines:
        raise UserError(
            f"train_head: {folder / STATE} is the checkpoint of another run (old → new):\n  "
            + "\n  ".join(lines)
            + f"\nTake another output folder, or the old values, or remove it and {PREVIOUS} to start again."
        )
    losses_SMK = state.tensors.pop(LOSSES, None)
    return state.step, state.tensors, losses_SMK


def state_step(folder: Place) -> int:
    """How many steps the state in ``folder`` has behind it, as its header says; 0 if there is none."""
    for path in (folder / STATE, folder / PREVIOUS):
        if path.exists():
            try:
                with local_copy(path) as local, safe_open(local, framework="numpy") as file:
                    return int(file.metadata()["step"])
            except (*_DAMAGE, FileNotFoundError):  # whoever trains says so; or it has just become the previous one
                continue
    return 0


def remove_state(folder: Place) -> None:
    """The run is over and its heads are saved."""
    for name in (STATE, PREVIOUS):
        (folder / name).unlink(missing_ok=True)


@dataclass(frozen=True, kw_only=True)
class _State:
    step: int
    meaning: Any
    tensors: dict[str, Tensor]


#: What reading a file raises that is no safetensors file, or whose metadata are not ours.
_DAMAGE = (SafetensorError, ValueError, LookupError, TypeError)


def _last_sound(folder: Place, progress: Progress) -> bytes | None:
    damaged: list[str] = []
    found, goes_on = None, "begins again at step 0"
    for path in (folder / STATE, folder / PREVIOUS):
        if not path.exists():
            continue
        with local_copy(path) as local:
            data = read_bytes(local)
        try:
            goes_on = f"goes on at step {_read(data).step}, with {path.name}"
        except DamagedError as error:
            damaged.append(f"{path}: {error}")
            path.unlink(missing_ok=True)  # the next state would take the place of the sound one otherwise
        else:
            found = data
            break
    for what in damaged:
        progress.say(f"train_head: {what}. It is removed, and training {goes_on}.")
    return found


def _read(data: bytes) -> _State:
    """What the bytes of a file hold.

    Raises:
        DamagedError: they are not those that were written.
    """
    from safetensors.torch import load

    try:
        tensors = load(data)
        metadata = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])["__metadata__"]
        seal = metadata.pop(SEAL, None)
        if seal is not None and seal != _seal(tensors, metadata):  # earlier versions wrote none
            raise DamagedError("it is not what was written")
        return _State(step=int(metadata["step"]), meaning=json.loads(metadata["meaning"]), tensors=tensors)
    except DamagedError as error:
        raise DamagedError(f"the checkpoint is damaged ({error})") from None
    except _DAMAGE as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise DamagedError(f"the checkpoint is damaged ({reason})") from error


def _seal(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> str:
    """A digest of everything that a state says."""
    import torch

    held = {
        name: [
            str(value.dtype),
            list(value.shape),
            sha256(value.reshape(-1).view(torch.uint8).numpy().data).hexdigest(),
        ]
        for name, value in tensors.items()
    }
    return digest({"metadata": dict(metadata), "tensors": held})
