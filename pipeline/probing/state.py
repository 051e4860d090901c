"""The state of a streaming fit between two steps: a file for each classifier, then a record that makes them count.

A file a classifier, because writing one makes a copy in memory of what it holds. Names carry the step, so that those
of the state before stay whole until the new record stands. No pickle.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

import safetensors.torch

from pipeline.errors import DamagedError
from pipeline.files import PARTIAL, read_bytes, sha256_file, write_bytes
from pipeline.places import Place
from pipeline.probing.softmax import SoftmaxClassifier
from pipeline.progress import Progress
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


def load_state(folder: Place, classifiers: Sequence[SoftmaxClassifier], meaning: str, progress: Progress) -> int:
    """Put the classifiers into the state that lies there; the steps done, 0 if there is no state of this fit.

    One that is damaged is removed and said, and the classifiers stay as they are.
    """
    try:
        found = read_sealed(folder / RECORD)
    except FileNotFoundError:
        return 0
    except DamagedError:
        bad = [folder / RECORD]
    else:
        if found["meaning"] != meaning:
            return 0  # of other settings or another store: it is overwritten
        bad = [folder / name for name, digest in found["files"].items() if not _whole(folder / name, digest)]
    if bad:  # found out before any classifier changes
        remove_state(folder)
        progress.say(
            f"probe: {bad[0]}: the checkpoint is damaged (it is not what was written). It is "
            "removed, and the fit begins again at step 0."
        )
        return 0
    for name, one in zip(sorted(found["files"]), classifiers, strict=True):
        one.restore(safetensors.torch.load(read_bytes(folder / name)))
    return int(found["step"])


def remove_state(folder: Place) -> None:
    """The fit is over and its probes are saved."""
    if folder.is_dir():
        (folder / RECORD).unlink(missing_ok=True)  # first: without it the others do not count
        _sweep(folder, set())
        if isinstance(folder, Path):  # object stores have no folders
            folder.rmdir()


def _whole(path: Place, digest: str) -> bool:
    return path.is_file() and sha256_file(path) == digest


def _sweep(folder: Place, keep: set[str]) -> None:
    for path in folder.iterdir():
        if path.name not in keep and (path.name.startswith("step-") or PARTIAL in path.name):
            path.unlink()
