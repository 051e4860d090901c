"""A remote file as a local one: fetched whole, its size checked, tried again, and removed afterwards.

Copies lie in a folder below the system's temporary one (``TMPDIR`` moves it), which the process that made it keeps
locked. A lock ends with its process, so a later process removes what a killed one left.
"""

from __future__ import annotations

import fcntl
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pipeline.errors import UserError
from pipeline.places import Place, RemotePath, reaching

ATTEMPTS = 4  # of a transfer; the library beneath has its own for a single request
PAUSE_S = 1.0  # before the second attempt; twice as long before each further one
_PREFIX, _LOCK = "hedgerow-fetch-", "lock"
_YOUNG_S = 60.0  # such a folder may be about to be locked


@contextmanager
def local_copy(place: Place) -> Iterator[Path]:
    """``place`` itself if it is local, else a copy that is there until the block is left.

    Raises:
        UserError: there is no such object, or it cannot be fetched: the last reason.
    """
    if not isinstance(place, RemotePath):
        yield place
        return
    sweep_copies()
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
    try:
        with (folder / _LOCK).open("wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            (folder / "copy").mkdir()
            target = folder / "copy" / place.name
            fetch(place, target)
            yield target
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def fetch(place: RemotePath, target: Path, *, sleep: Callable[[float], None] = time.sleep) -> None:
    """Copy the object at ``place`` to ``target``.

    Raises:
        UserError: there is no such object, no room, or every attempt failed.
    """
    for attempt in range(1, ATTEMPTS + 1):
        try:
            with reaching(place):
                _transfer(place, target)
            return
        except FileNotFoundError:
            raise UserError(f"no file at {place}. Check its name; a unit without its tar fails alone.") from None
        except UserError as error:
            if attempt == ATTEMPTS or isinstance(error.__cause__, PermissionError):
                raise
            sleep(PAUSE_S * 2 ** (attempt - 1))


def _transfer(place: RemotePath, target: Path) -> None:
    promised = place.fs.info(place.path).get("size")
    if promised is not None and promised > (free := shutil.disk_usage(target.parent).free):
        raise UserError(
            f"{place}: {promised / 1e9:.1f} GB, but only {free / 1e9:.1f} GB are free in {target.parent}. "
            "Make room, or let TMPDIR name a larger disk."
        )
    place.fs.get_file(place.path, str(target))
    size = target.stat().st_size
    if promised is not None and size != promised:
        raise ConnectionError(f"{size} of {promised} bytes came")


def sweep_copies() -> int:
    """Remove the copies of processes that are no more; how many there were."""
    strays = [folder for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*") if _abandoned(folder)]
    for folder in strays:
        shutil.rmtree(folder, ignore_errors=True)
    return len(strays)


def _abandoned(folder: Path) -> bool:
    try:
        if time.time() - folder.stat().st_mtime < _YOUNG_S:
            return False
        with (folder / _LOCK).open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return folder.is_dir()  # without a lock: killed at once; gone: another has removed it
    except OSError:
        return False  # locked, or another user's
    return True
