"""Files that are either whole or absent: temporary name, fsync, rename.

A process killed at any moment leaves the old file, the new file, or a stray ``*.partial`` beside it that the
next writer of the same file sweeps away. So a reader never meets half a file.
"""

from __future__ import annotations

import hashlib
import json
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

PARTIAL = ".partial"


def sync_folder(folder: Path) -> None:
    """Make the renames inside ``folder`` durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_file(path: Path) -> None:
    """Make a file written by someone else (zarr) durable, and its name too."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    sync_folder(path.parent)


@contextmanager
def atomic_file(path: Path) -> Iterator[BinaryIO]:
    """Open a temporary file beside ``path``; on leaving without an error it becomes ``path``, durably."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{uuid.uuid4().hex}{PARTIAL}")
    try:
        with temporary.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def write_bytes(path: Path, data: bytes) -> None:
    """Write ``data`` to ``path`` atomically and durably."""
    with atomic_file(path) as file:
        file.write(data)


def write_json(path: Path, value: Any) -> None:
    """Write ``value`` as indented JSON with sorted keys: the same value gives the same bytes."""
    text = json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False)
    write_bytes(path, (text + "\n").encode())


def read_json(path: Path) -> Any:
    """Read a JSON file written by :func:`write_json`."""
    return json.loads(path.read_text(encoding="utf-8"))


def sweep_partials(folder: Path) -> int:
    """Remove stray temporary files directly inside ``folder``; how many there were."""
    strays = list(folder.glob(f"*{PARTIAL}")) if folder.is_dir() else []
    for stray in strays:
        stray.unlink(missing_ok=True)
    return len(strays)


def sha256_file(path: Path) -> str:
    """Hex SHA-256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
