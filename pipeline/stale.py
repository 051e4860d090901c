"""Files of a network disk whose handle became stale: opened again.

A server that was restarted, or a file whose name another machine gave to a new one, ends what was open with ESTALE
("stale file handle"). The file is still there, under its name; so what reads it is done again from opening it.
"""

from __future__ import annotations

import errno
import io
import os
import time
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from types import TracebackType
from typing import ParamSpec, TypeVar

ATTEMPTS = 5
PAUSE_S = 0.1  # before the second; four times as long before each further one, 8.5 s together

_P = ParamSpec("_P")
_T = TypeVar("_T")


def again_if_stale(action: Callable[_P, _T]) -> Callable[_P, _T]:
    """``action``, which opens what it reads and may be done twice, done again while the system says ESTALE.

    Raises:
        OSError: it still says so at the last attempt. Every other error passes at once.
    """

    @wraps(action)
    def steady(*arguments: _P.args, **named: _P.kwargs) -> _T:
        for attempt in range(ATTEMPTS - 1):
            try:
                return action(*arguments, **named)
            except OSError as error:
                if error.errno != errno.ESTALE:
                    raise
                time.sleep(PAUSE_S * 4**attempt)
        return action(*arguments, **named)

    return steady


class ReplacedError(OSError):
    """Under the file's name lies another one than was opened first."""


class SteadyFile:
    """A file that is read here and there for a long time, opened again where its handle became stale.

    Raises:
        ReplacedError: it was opened again, and its size or time of change are not the same.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: io.BufferedReader | None = None
        self._mark: tuple[int, int] | None = None

    def __enter__(self) -> SteadyFile:
        again_if_stale(self._open)()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def read_at(self, start: int, size: int) -> bytes:
        """``size`` bytes from ``start`` on; fewer where the file ends."""
        return again_if_stale(self._read_at)(start, size)

    def _read_at(self, start: int, size: int) -> bytes:
        file = self._file or self._open()
        try:
            file.seek(start)
            return file.read(size)
        except OSError:
            self._close()
            raise

    def _open(self) -> io.BufferedReader:
        file = self.path.open("rb")
        found = os.fstat(file.fileno())
        mark = (found.st_size, found.st_mtime_ns)
        if self._mark not in (None, mark):
            file.close()
            raise ReplacedError(f"{self.path}: another file took its place while it was read")
        self._file, self._mark = file, mark
        return file

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
