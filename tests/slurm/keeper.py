"""``keeper.py FOLDER COMMAND …``: runs a command so that nothing of it outlives the process that asked for it.

A lab starts every daemon through a keeper of its own. The keeper is a *subreaper*: whatever its daemon starts, and
however often that forks away, it stays below the keeper. When the pipe at its standard input closes, because the lab
wants it so or because the lab's process is dead, however it died, the keeper kills all that is below it. The last
keeper of a lab that is over takes the lab's folder away too, and its lines in the table of host names.

Standard library only; run with ``python -S``, it costs some 20 ms.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import select
import shutil
import signal
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

HOSTS = Path("/etc/hosts")
MARK = "# hedgerow lab "
PR_SET_CHILD_SUBREAPER = 36  # <linux/prctl.h>


def main() -> int:
    """Run ``COMMAND`` until standard input closes; its exit code when it and all that it started end before."""
    folder, *command = sys.argv[1:]
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # meant for the lab, which then closes the pipe
    use = hold(Path(folder))
    code = watch(start(command), os.getppid())
    use.close()
    forget_unless_used(Path(folder))
    return code


def start(command: Sequence[str]) -> int:
    """Its process id."""
    pid = os.fork()
    if pid:
        return pid
    try:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.execvp(command[0], list(command))
    finally:
        os._exit(127)


def watch(child: int, parent: int) -> int:
    """Until nothing runs any more, killed when the pipe closes; the exit code of ``child``, 137 when it was killed."""
    code = 128 + signal.SIGKILL
    over = False
    while True:
        try:
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    break
                if pid == child and not over:
                    code = os.waitstatus_to_exitcode(status) % 256
        except ChildProcessError:  # there is none left
            return code
        if over:
            for pid in children(os.getpid()):  # their children are ours in the next round
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.005)
        else:
            ready, _, _ = select.select([0], [], [], 0.2)
            over = (bool(ready) and os.read(0, 1) == b"") or os.getppid() != parent


def children(pid: int) -> list[int]:
    """The processes whose parent is ``pid``."""
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            with contextlib.suppress(OSError):
                state_and_parent = (process / "stat").read_bytes().rpartition(b")")[2].split()
                if int(state_and_parent[1]) == pid:
                    found.append(int(process.name))
    return found


def hold(folder: Path) -> IO[bytes]:
    """A lock on ``folder`` that others can share; it goes when the file is closed or the process ends."""
    lock = (folder / "in-use").open("wb")
    fcntl.flock(lock, fcntl.LOCK_SH)
    return lock


def forget_unless_used(folder: Path) -> None:
    """Take the folder of a lab away, and its host names, unless somebody holds it."""
    with contextlib.suppress(FileNotFoundError, BlockingIOError), (folder / "in-use").open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder, ignore_errors=True)
        with host_table():
            pass  # its lines go


def name_hosts(folder: Path, names: Sequence[str]) -> None:
    """As long as there is ``folder``, these names lead to 127.0.0.1, and so does the name of this machine.

    That is where SLURM listens when it must not listen on all addresses, and it is elsewhere in many containers.
    """
    host = socket.gethostname()
    with host_table() as lines:
        of_host = [line for line in lines if MARK not in line and host in line.partition("#")[0].split()[1:]]
        if not of_host or of_host[0].split()[0] != "127.0.0.1":
            lines.insert(0, f"127.0.0.1 {host} {MARK}{folder}")  # the first line counts
        lines.append(f"127.0.0.1 {' '.join(names)} {MARK}{folder}")


@contextlib.contextmanager
def host_table() -> Iterator[list[str]]:
    """The lines of the table of host names, to be changed. Lines of labs whose folder is gone are left out."""
    with HOSTS.open(
        "r+", encoding="utf-8"
    ) as file:  # written in place: in a container another file may be mounted there
        fcntl.flock(file, fcntl.LOCK_EX)
        before = file.read()
        lines = [line for line in before.splitlines() if MARK not in line or Path(line.partition(MARK)[2]).exists()]
        yield lines
        after = "".join(f"{line}\n" for line in lines)
        if after != before:
            file.seek(0)
            file.write(after)
            file.truncate()


if __name__ == "__main__":
    sys.exit(main())
