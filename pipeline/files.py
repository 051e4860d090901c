"""Files that are either whole or absent: temporary name, fsync, rename; on an object store, one upload.

A process killed at any moment leaves the old file, the new file, or a stray ``*.partial`` beside it that the
next writer of the same file sweeps away. So a reader never meets half a file. An object appears whole or not at all, so
there the file is made in a local temporary one and uploaded once it is complete.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, BinaryIO, cast

from pipeline.many_files import file_names
from pipeline.places import Place, RemotePath, reaching
from pipeline.processes import machine, runs

PARTIAL = ".partial"
STRAY_SECONDS = 3600.0  # no single file takes that long to write


def sync_folder(folder: Path) -> None:
    """Make the renames inside ``folder`` durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def atomic_file(path: Place) -> Iterator[BinaryIO]:
    """Open a temporary file; on leaving without an error it becomes ``path``, durably."""
    if isinstance(path, RemotePath):
        with tempfile.NamedTemporaryFile(prefix="hedgerow-") as temporary:
            yield cast(BinaryIO, temporary)
            temporary.flush()
            with reaching(path):
                path.fs.put_file(temporary.name, path.path)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.{machine()}-{os.getpid()}-{uuid.uuid4().hex}{PARTIAL}")
    try:
        with partial.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def write_bytes(path: Place, data: bytes) -> None:
    """Write ``data`` to ``path`` atomically and durably."""
    if isinstance(path, RemotePath):
        with reaching(path):
            path.fs.pipe_file(path.path, data)
        return
    with atomic_file(path) as file:
        file.write(data)


def append_text(path: Place, text: str) -> None:
    """Add ``text`` at the end, as :func:`append_bytes` does."""
    append_bytes(path, text.encode())


def append_bytes(path: Place, data: bytes) -> None:
    """Add ``data`` at the end, durably. An object cannot grow, so there it is read and written anew."""
    if isinstance(path, RemotePath):
        before = path.read_bytes() if path.exists() else b""
        write_bytes(path, before + data)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def json_bytes(value: Any) -> bytes:
    """``value`` as indented JSON with sorted keys: the same value gives the same bytes."""
    text = json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False)
    return (text + "\n").encode()


def write_json(path: Place, value: Any) -> None:
    """Write ``value`` as :func:`json_bytes`, atomically and durably."""
    write_bytes(path, json_bytes(value))


def read_json(path: Place) -> Any:
    """Read a JSON file written by :func:`write_json`."""
    return json.loads(path.read_text(encoding="utf-8"))


def sweep_partials(folder: Place, name: str = "*") -> int:
    """Remove stray temporary files directly inside ``folder``; how many there were. An object store has none.

    A file is stray when the process of this machine that began it is gone. Other machines' processes cannot be looked
    at, so theirs are stray after :data:`STRAY_SECONDS`. What another process is writing right now stays.

    Args:
        folder: where to look.
        name: pattern of the files that were being written.
    """
    if isinstance(folder, RemotePath):
        return 0
    found = [folder / file for file in file_names(folder, PARTIAL) if fnmatchcase(file, f"{name}.*{PARTIAL}")]
    strays = [path for path in found if _is_stray(path)]
    for stray in strays:
        stray.unlink(missing_ok=True)
    return len(strays)


def _is_stray(partial: Path) -> bool:
    where, _, process = partial.name.removesuffix(PARTIAL).rsplit(".", 1)[-1].rpartition("-")[0].rpartition("-")
    if where == machine() and process.isdigit():
        return not runs(int(process))
    try:
        return time.time() - partial.stat().st_mtime > STRAY_SECONDS
    except FileNotFoundError:  # it was finished or swept in the meantime
        return False


def sha256_file(path: Place) -> str:
    """Hex SHA-256 of a file's bytes, read from where they lie.

    Raises:
        FileNotFoundError: there is no such file.
    """
    if isinstance(path, RemotePath):
        with tempfile.NamedTemporaryFile(prefix="hedgerow-") as copy, reaching(path):
            path.fs.get_file(path.path, copy.name)
            return sha256_file(Path(copy.name))
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
