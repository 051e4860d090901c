"""Daemons that end with the process that started them, and ports that nobody else takes."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

from tests.slurm import keeper

SEARCH_PATH = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/local/sbin", "/usr/sbin", "/sbin"])
PORTS = range(20_000, 32_000, 64)  # where blocks of ports start; below those that systems hand out themselves


class LabError(Exception):
    """Something did not do in time what it had to; says what, and shows the last lines of the logs."""


class Daemon:
    """A command below a keeper of its own; ``name`` names its logs."""

    def __init__(self, folder: Path, name: str, *command: str, **environment: str) -> None:
        self.name = name
        self._logs = [folder / "log" / f"{name}.log", folder / "log" / f"{name}.out"]
        clean = {"PATH": SEARCH_PATH, "LANG": "C.UTF-8", "HOME": "/root", "SLURM_CONF": str(folder / "slurm.conf")}
        with self._logs[1].open("ab") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-S", "-E", keeper.__file__, str(folder), *command],
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=out,
                env=clean | environment,
                start_new_session=True,
            )

    def let_go(self) -> None:
        """Its keeper starts to kill it and all that it started."""
        assert self.process.stdin is not None
        self.process.stdin.close()

    def end(self) -> None:
        """Kill it with all that it started; they are gone when this returns."""
        self.let_go()
        self.process.wait()

    @property
    def ended(self) -> bool:
        """Whether it is gone, with all that it started."""
        return self.process.poll() is not None

    def last_words(self) -> str:
        """The last lines of its logs."""
        logs = [log.read_text(errors="replace").splitlines()[-8:] for log in self._logs if log.exists()]
        return "\n".join(f"{self.name}: {line}" for lines in logs for line in lines)


def claim_ports(count: int) -> tuple[socket.socket, list[int]]:
    """Free ports in a row, and what keeps other labs from them until it is closed."""
    for first in PORTS:
        ports = list(range(first, first + count))
        claim = socket.socket(socket.AF_UNIX)
        try:
            claim.bind(f"\0hedgerow-lab-{first}")  # an abstract name: in no file system, and gone with this process
            for port in ports:
                with socket.socket() as probe:
                    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    probe.bind(("127.0.0.1", port))
        except OSError:
            claim.close()
            continue
        return claim, ports
    raise LabError(f"no {count} free TCP ports from {PORTS.start} to {PORTS.stop}")


def answers(path: Path) -> bool:
    """Whether somebody listens at a Unix socket."""
    with socket.socket(socket.AF_UNIX) as client:
        return client.connect_ex(str(path)) == 0
