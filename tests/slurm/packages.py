"""The Debian packages that a lab needs, installed where that is possible; none of their services is started."""

from __future__ import annotations

import os
import subprocess

from tests import debian
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
HOW = f"to run the SLURM tests: {' '.join(debian.APT_INSTALL)} {' '.join(sorted(set(NEEDED.values())))}; then as root"
#: The versions with which a lab has come up: one that does not is an error of ours there, and nowhere else.
PROVEN = ((22, 5),)


def why_not() -> str:
    """Have what a lab needs, installing it if need be; else the reason why there can be none, in a line."""
    return f"not root; {HOW}" if os.geteuid() != 0 else debian.why_not(NEEDED, HOW, SEARCH_PATH)


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
    return debian.missing(NEEDED, SEARCH_PATH)
