"""Keep freed memory in the process, so that the next layer or batch does not fault its pages in anew."""

from __future__ import annotations

import ctypes
import sys

# glibc's names and numbers (malloc.h); larger thresholds mean that blocks are reused, not returned to the system.
_M_TRIM_THRESHOLD = -1
_M_TOP_PAD = -2
_M_MMAP_THRESHOLD = -3


def keep_freed_memory() -> None:
    """Tell glibc to reuse large freed blocks; nothing happens on other systems.

    Without it each activation, and each batch, of some megabytes is mapped and unmapped by the kernel. Process-wide, so
    for programs that run a backbone or train heads on the CPU, not for a library that is imported by others.
    """
    if not sys.platform.startswith("linux"):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:  # musl has none
        return
    mallopt(_M_MMAP_THRESHOLD, 256 << 20)  # more than an activation, less than a giant image being decoded
    mallopt(_M_TRIM_THRESHOLD, (1 << 31) - 1)
    mallopt(_M_TOP_PAD, 64 << 20)
