"""The code that tasks run is the code that was submitted."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import uuid
from pathlib import Path

import pipeline
from pipeline.errors import UserError

ROOT = Path(pipeline.__file__).resolve().parent.parent
PARTS = ("pipeline", "stages", "cluster", "configs", "hedgerow.py")
FOLDER = "code"


def snapshot(jobs: Path) -> Path:
    """A copy of the code, for PYTHONPATH; one for all submissions of the same code."""
    files = _files()
    sums = hashlib.sha256()
    for path in files:
        sums.update(f"{path.relative_to(ROOT)}\n".encode())
        sums.update(hashlib.sha256(path.read_bytes()).digest())
    place = jobs / FOLDER / sums.hexdigest()[:12]
    if place.is_dir():
        return place
    making = jobs / FOLDER / f".{uuid.uuid4().hex}"
    for path in files:
        copy = making / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
    try:
        making.rename(place)  # whole or not at all; of two at once, one is thrown away
    except OSError:
        shutil.rmtree(making)
        if not place.is_dir():
            raise
    return place


def _files() -> list[Path]:
    found = [path for part in PARTS for path in [ROOT / part, *sorted((ROOT / part).rglob("*"))] if path.is_file()]
    return [path for path in found if "__pycache__" not in path.parts]


def commit() -> str:
    """The commit of the checkout that is installed.

    Raises:
        UserError: it is no git checkout, or it has changes that are in no commit.
    """
    try:
        changes = _git("status", "--porcelain", "--", *PARTS)
        revision = _git("rev-parse", "HEAD")
    except (OSError, subprocess.CalledProcessError) as error:
        raise UserError(
            f"cluster.code=commit: {ROOT} is no git checkout ({error}). Set cluster.code=snapshot."
        ) from None
    if changes:
        listing = "\n  ".join(changes.splitlines()[:10])
        raise UserError(
            f"cluster.code=commit: {ROOT} has changes that are in no commit:\n  {listing}\n"
            "Commit them, or set cluster.code=snapshot, which copies the code as it is."
        )
    return revision


def _git(*arguments: str) -> str:
    command = ["git", "-C", str(ROOT), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
