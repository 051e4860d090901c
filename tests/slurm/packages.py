"""The Debian packages that a lab needs, installed where that is possible; none of their services is started."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.slurm.daemons import SEARCH_PATH, LabError

# a command, and the package that it comes from
NEEDED = {
    "munged": "munge",
    "sbatch": "slurm-client",
    "slurmctld": "slurmctld",
    "slurmd": "slurmd",
    "slurmdbd": "slurmdbd",
    "mariadbd": "mariadb-server-core",
    "mariadb-install-db": "mariadb-server-core",
    "my_print_defaults": "mariadb-client-core",  # mariadb-install-db calls it
}
APT_INSTALL = ["apt-get", "install", "--yes", "--no-install-recommends"]
HOW = f"to run the SLURM tests: {' '.join(APT_INSTALL)} {' '.join(sorted(set(NEEDED.values())))}; then as root"
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
#: The versions with which a lab has come up: one that does not is an error of ours there, and nowhere else.
PROVEN = ((22, 5),)
POLICY = Path("/usr/sbin/policy-rc.d")  # asked by every Debian package before it starts a service


def why_not() -> str:
    """Have what a lab needs, installing it if need be; else the reason why there can be none, in a line."""
    if os.geteuid() != 0:
        return f"not root; {HOW}"
    if missing() and shutil.which("apt-get") is None:
        return f"no {', '.join(missing())}, and no apt-get; {HOW}"
    with (Path(tempfile.gettempdir()) / "hedgerow-apt.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another process of the tests may be at it
        said = install() if missing() else ""
    return f"apt-get failed ({said}); {HOW}" if missing() else ""


def why_not_up(error: LabError) -> str:
    """Why a lab that did not come up is no error of ours, in a line; nothing where it has to."""
    if version() in PROVEN:
        return ""
    proven = ", ".join(f"{year}.{month:02}" for year, month in PROVEN)
    said = " ".join(str(error).split())[-300:]
    return (
        f"no lab with the SLURM {'.'.join(map(str, version()))} of this machine (proven: {proven}): … {said}. "
        "`python -m tests.slurm.lab up` shows more; to run the SLURM tests, use Debian 12"
    )


def version() -> tuple[int, ...]:
    """Year and month of the SLURM that is here."""
    command = ["slurmd", "-V"]  # "slurm-wlm 22.05.8"
    said = subprocess.run(command, env={"PATH": SEARCH_PATH}, capture_output=True, text=True, check=True).stdout
    return tuple(int(part) for part in said.split()[-1].split(".")[:2])


def missing() -> list[str]:
    """The packages whose commands are not there."""
    return sorted({package for command, package in NEEDED.items() if shutil.which(command, path=SEARCH_PATH) is None})


def install() -> str:
    """Install what is missing; the last line that apt said."""
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8"}
    commands = [[*APT_INSTALL, *missing()], ["apt-get", "update"], [*APT_INSTALL, *missing()]]
    said = ""
    with no_services():
        for command in commands:  # the lists of packages may be old or missing
            done = subprocess.run(
                [*command, *QUIETLY],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            said = (done.stdout.strip().splitlines() or [""])[-1]
            if not missing():
                break
    return said


@contextlib.contextmanager
def no_services() -> Iterator[None]:
    """Packages that are installed meanwhile start nothing; what the machine's own policy says stays."""
    mark = "# of the tests of hedgerow, while they install packages"
    if POLICY.exists() and mark not in POLICY.read_text():
        yield
        return
    POLICY.write_text(f"#!/bin/sh\n{mark}\nexit 101\n")  # 101: not allowed
    POLICY.chmod(0o755)
    try:
        yield
    finally:
        POLICY.unlink()
