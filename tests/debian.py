"""Debian packages that tests need, installed where that is possible (root, apt); none of their services is started."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

APT_INSTALL = ["apt-get", "install", "--yes", "--no-install-recommends"]
# --no-remove: never at the cost of another package, such as a MySQL server
QUIETLY = [
    "--quiet",
    "--no-remove",
    "-o",
    "Acquire::Retries=1",
    "-o",
    "Acquire::http::Timeout=20",
    "-o",
    "DPkg::Lock::Timeout=60",
]
POLICY = Path("/usr/sbin/policy-rc.d")  # asked by every Debian package before it starts a service


def why_not(needed: Mapping[str, str], how: str, path: str | None = None) -> str:
    """Have some commands, installing what is missing if need be; else the reason why they cannot be had, in a line.

    Args:
        needed: a command, and the package that it comes from.
        how: what to do for the tests to run, for the reason.
        path: where commands are looked for.
    """
    if not missing(needed, path):
        return ""
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        who = "not root" if os.geteuid() else "no apt-get"
        return f"no {', '.join(missing(needed, path))}, and {who}; {how}"
    with (Path(tempfile.gettempdir()) / "hedgerow-apt.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another process of the tests may be at it
        said = install(needed, path) if missing(needed, path) else ""
    return f"apt-get failed ({said}); {how}" if missing(needed, path) else ""


def missing(needed: Mapping[str, str], path: str | None = None) -> list[str]:
    """The packages whose commands are not there."""
    return sorted({package for command, package in needed.items() if shutil.which(command, path=path) is None})


def install(needed: Mapping[str, str], path: str | None = None) -> str:
    """Install what is missing; the last line that apt said."""
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8"}
    packages = [*APT_INSTALL, *missing(needed, path)]
    said = ""
    with no_services():
        for command in (packages, ["apt-get", "update"], packages):  # the lists of packages may be old or missing
            done = subprocess.run(
                [*command, *QUIETLY],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            said = (done.stdout.strip().splitlines() or [""])[-1]
            if not missing(needed, path):
                break
    return said


@contextlib.contextmanager
def no_services() -> Iterator[None]:
    """Packages that are installed meanwhile start nothing; what the machine's own policy says stays."""
    mark = "# of the tests of hedgerow, while they install packages"
    if POLICY.exists() and mark not in POLICY.read_text(encoding="utf-8"):
        yield
        return
    POLICY.write_text(f"#!/bin/sh\n{mark}\nexit 101\n", encoding="utf-8")  # 101: not allowed
    POLICY.chmod(0o755)
    try:
        yield
    finally:
        POLICY.unlink()
