"""Room for giant images: how many pixels may be decoded at once, whatever the number of threads and processes.

An image of 179 megapixels takes 0.7 GB decoded (Pillow keeps 4 bytes a pixel) and as much again while views are cut
from it. Such images are rare, and one at a time is quick enough; several at once would end the process.
"""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import lru_cache
from typing import Any

#: Images with more pixels are refused before they are decoded: twice Pillow's own threshold of warning.
MAX_PIXELS = 178_956_970
SMALL = 4_000_000  # images of fewer pixels (16 MB) need not ask
GIANT = 32_000_000  # after images of more pixels (128 MB) freed memory goes back to the system


class Room:
    """At most ``pixels`` in use at once; one image that alone is larger is let in when it is alone.

    Attributes:
        giants: held by whoever decodes more than :data:`GIANT` pixels; decoding processes of one job share it.
    """

    def __init__(self, pixels: int) -> None:
        self.pixels = pixels
        self.used = 0
        self.giants: AbstractContextManager[Any] = nullcontext()
        self._changed = threading.Condition()

    @contextmanager
    def taken(self, pixels: int) -> Iterator[None]:
        """Wait until there is room for ``pixels``, and hold it until the block is left."""
        if pixels < SMALL:
            yield
            return
        with self._changed:
            self._changed.wait_for(lambda: not self.used or self.used + pixels <= self.pixels)
            self.used += pixels
        try:
            with self.giants if pixels >= GIANT else nullcontext():
                yield
        finally:
            with self._changed:
                self.used -= pixels
                self._changed.notify_all()
            if pixels >= GIANT:
                _give_back()


def _give_back() -> None:
    """Return freed memory to the system: programs that run a backbone have told glibc to keep it."""
    if (trim := _trim()) is not None:
        trim(0)


@lru_cache(maxsize=1)
def _trim() -> ctypes._NamedFuncPointer | None:
    found = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform.startswith("linux") else None
    return found  # musl has none


#: Of this process.
ROOM = Room(MAX_PIXELS)
