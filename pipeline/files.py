"""Files that are either whole or absent: temporary name, fsync, rename; on an object store, one upload.

A process killed at any moment leaves the old file, the new file, or a stray ``*.partial`` beside it that the
next writer of the same file sweeps away. So a reader never meets half a file. An object appears whole or not at all, so
there the file is made in a local temporary one and uploaded once it is complete.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, BinaryIO, cast

from pipeline.errors import DamagedError
from pipeline.many_files import file_names
from pipeline.places import Place, RemotePath, reaching
from pipeline.processes import machine, runs
from pipeline.stale import again_if_stale

PARTIAL = ".partial"
NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})  # what only writing ends with
#: What file systems say that have no such thing: FUSE, SMB, FAT, and some of network disks.
NOT_OFFERED = frozenset({errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EPERM})
STRAY_SECONDS = 3600.0  # no single file takes that long to write


def sync_folder(folder: Path) -> None:
    """Make the renames inside ``folder`` durable, where the file system has a way to do so.

    Some have none for folders, and folders that one may write into but not list cannot be opened: then the renames
    are as durable as they are by themselves.
    """
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except PermissionError:
        return
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in NOT_OFFERED | {errno.EBADF, errno.EACCES}:
            raise
    finally:
        os.close(descriptor)


def _partial_of(path: Path) -> Path:
    """A name beside ``path`` that no other writer has, and that says whose it is."""
    return path.with_name(f"{path.name}.{machine()}-{os.getpid()}-{uuid.uuid4().hex}{PARTIAL}")


@contextmanager
def temporary_folder(path: Path) -> Iterator[Path]:
    """A new folder beside ``path``, this writer's own; it is removed on leaving, unless it was moved away.

    What cannot go yet is a stray for the next sweep: NFS keeps a file that is open, under the name ``.nfs…``.
    """
    partial = _partial_of(path)
    partial.mkdir(parents=True)
    try:
        yield partial
    finally:
        if partial.exists():
            shutil.rmtree(partial, ignore_errors=True)


def move_folder(made: Path, path: Path) -> None:
    """Give a finished folder its name; what has the name is replaced, also where others do the same at once."""
    while True:
        try:
            made.rename(path)
            break
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
        with temporary_folder(path) as aside, suppress(FileNotFoundError):  # somebody else has moved it already
            path.rename(aside / path.name)
    sync_folder(path.parent)


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
    partial = _partial_of(path)
    try:
        with _naming(path), partial.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Say which file there is no room for: the system says "no space left on device" and not on which."""
    try:
        yield
    except OSError as error:
        if error.errno in NO_ROOM and error.filename is None:
            error.filename = str(path)
        raise


def write_bytes(path: Place, data: bytes) -> None:
    """Write ``data`` to ``path`` atomically and durably."""
    if isinstance(path, RemotePath):
        with reaching(path):
            path.fs.pipe_file(path.path, data)
        return
    with atomic_file(path) as file:
        file.write(data)


def move_file(path: Place, to: Place) -> None:
    """Give a file or object another name; what has the name is replaced.

    A file is always there under one of the two names; an object is copied, so for a moment it is there under both.
    """
    if isinstance(path, RemotePath):
        with reaching(path):
            path.fs.cp_file(path.path, to.path)  # type: ignore[union-attr]
        path.unlink()
    else:
        path.replace(Path(str(to)))
        sync_folder(path.parent)


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
    with _naming(path), path.open("ab") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def json_bytes(value: Any, *, sort_keys: bool = True) -> bytes:
    """``value`` as indented JSON, with sorted keys unless their order says something: same value, same bytes."""
    text = json.dumps(value, indent=2, sort_keys=sort_keys, ensure_ascii=False, allow_nan=False)
    return (text + "\n").encode()


def write_json(path: Place, value: Any, *, sort_keys: bool = True) -> None:
    """Write ``value`` as :func:`json_bytes`, atomically and durably."""
    write_bytes(path, json_bytes(value, sort_keys=sort_keys))


def read_json(path: Place) -> Any:
    """Read a JSON file written by :func:`write_json`.

    Raises:
        FileNotFoundError: there is none.
        DamagedError: it is none.
    """
    data = read_bytes(path)
    try:
        return json.loads(data.decode("utf-8"))
    except ValueError as error:
        raise DamagedError(
            f"{path} is damaged ({error}). `submit verify` with the same settings finds what is wrong and gives the "
            "command that repairs it."
        ) from None


@again_if_stale
def read_bytes(path: Place) -> bytes:
    """All bytes of a file or object.

    Raises:
        FileNotFoundError: there is none.
        UserError: the object's place cannot be reached.
    """
    with reaching(path):
        return bytes(path.read_bytes())


def sweep_partials(folder: Place, name: str = "*") -> int:
    """Remove stray temporary files and folders directly inside ``folder``; how many there were.

    An object store has none. One is stray when the process of this machine that began it is gone. Other machines'
    processes cannot be looked at, so theirs are stray after :data:`STRAY_SECONDS`. What another process is writing
    right now stays.

    Args:
        folder: where to look.
        name: pattern of what was being written.
    """
    if isinstance(folder, RemotePath):
        return 0
    found = [folder / file for file in file_names(folder, PARTIAL) if fnmatchcase(file, f"{name}.*{PARTIAL}")]
    strays = [path for path in found if _is_stray(path)]
    for stray in strays:
        if stray.is_dir():
            shutil.rmtree(stray, ignore_errors=True)  # another one may sweep it too
        else:
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


@again_if_stale
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
