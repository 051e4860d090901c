"""The state of a streaming fit between two steps: a file for each classifier, then a record that makes them count.

A file a classifier, because writing one makes a copy in memory of what it holds. Names carry the step, so that those
of the state before stay whole until the new record stands. No pickle.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

import safetensors.torch

from pipeline.errors import DamagedError, UserError
from pipeline.files import PARTIAL, read_bytes, write_bytes
from pipeline.places import Place
from pipeline.probing.softmax import SoftmaxClassifier
from pipeline.sealed import read_sealed, write_sealed

RECORD = "state.json"


def save_state(folder: Place, classifiers: Sequence[SoftmaxClassifier], step: int, meaning: str) -> None:
    """Write the state after ``step`` steps; the one before goes once this one is whole.

    Args:
        folder: holds the state of one fit and nothing else.
        classifiers: in training.
        step: steps done.
        meaning: digest of everything that decides the fit.
    """
    files: dict[str, str] = {}
    for place, one in enumerate(classifiers):
        name = f"step-{step:09d}-{place:02d}.safetensors"
        data = safetensors.torch.save({key: value.cpu().contiguous() for key, value in one.state().items()})
        write_bytes(folder / name, data)
        files[name] = sha256(data).hexdigest()
    write_sealed(folder / RECORD, {"step": step, "meaning": meaning, "files": files})
    _sweep(folder, {RECORD, *files})


def load_state(folder: Place, classifiers: Sequence[SoftmaxClassifier], meaning: str) -> int:
    """Put the classifiers into the state that lies there; the steps done, 0 if there is no state of this fit.

    Raises:
        UserError: a file of the state is damaged or missing.
    """
    if not (folder / RECORD).is_file():
        return 0
    try:
        found = read_sealed(folder / RECORD)
        if found["meaning"] != meaning:
            return 0  # of other settings or another store: it is overwritten
        for (name, digest), one in zip(sorted(found["files"].items()), classifiers, strict=True):
            data = read_bytes(folder / name)
            if sha256(data).hexdigest() != digest:
                raise DamagedError(f"{name} is not what was written")
            one.restore(safetensors.torch.load(data))
    except (DamagedError, FileNotFoundError) as error:
        raise UserError(
            f"the state of the probes' fit in {folder} is damaged: {error}. Remove that folder: the fit starts again."
        ) from error
    return int(found["step"])


def remove_state(folder: Place) -> None:
    """The fit is over and its probes are saved."""
    if folder.is_dir():
        (folder / RECORD).unlink(missing_ok=True)  # first: without it the others do not count
        _sweep(folder, set())
        if isinstance(folder, Path):  # object stores have no folders
            folder.rmdir()


def _sweep(folder: Place, keep: set[str]) -> None:
    for path in folder.iterdir():
        if path.name not in keep and (path.name.startswith("step-") or PARTIAL in path.name):
            path.unlink()
