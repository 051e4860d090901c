"""A SLURM of its own on this machine: several nodes, accounting, partitions that preempt, in some seconds.

``python -m tests.slurm.lab up`` brings one up to play with. It needs root and installs what is missing.
Several labs at once don't meet: each has its own folder, TCP ports on loopback, munge key and node names. Nothing is
left when one ends, however it ends (``tests.slurm.keeper``).
"""

from __future__ import annotations

import argparse
import os
import secrets
import signal
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

from tests.slurm import configuration, keeper, packages
from tests.slurm.commands import Commands
from tests.slurm.daemons import Daemon, LabError, answers, claim_ports

LONGEST_FOLDER = 50  # a path of a socket has 107 characters; the longest, <folder>/spool/<node>/<node>_<job>.<step>, 55
TAKES_JOBS = ("IDLE", "MIXED", "ALLOCATED", "COMPLETING")


class Lab(Commands):
    """A SLURM that is not there before ``up`` and not after ``down``.

    ``node_names`` are ``nodes`` names that lead to this machine. Partitions: ``main`` (default), ``low`` (its jobs are
    requeued when ``high`` needs their place, ``grace_s`` seconds after their ``--signal``) and ``high``. Every node
    pretends to have ``cpus`` CPUs, 64 GB and ``gpus`` GPUs. Array indices are below ``max_array_size``. ``folder`` must
    be short, since paths of sockets are; by default a new one.
    """

    def __init__(
        self,
        nodes: int = 4,
        *,
        folder: Path | None = None,
        cpus: int = 4,
        gpus: int = 0,
        max_array_size: int = 21,
        grace_s: int = 4,
    ) -> None:
        self.folder = Path(f"/tmp/lab-{secrets.token_hex(4)}") if folder is None else folder.absolute()
        self.node_names: list[str] = []
        self._nodes, self._gpus = nodes, gpus
        self._settings = {"cpus": cpus, "gpus": gpus, "max_array_size": max_array_size, "grace_s": grace_s}
        self._daemons: dict[str, Daemon] = {}
        self._held: list[IO[bytes] | socket.socket] = []

    # ---- its life

    def up(self) -> None:
        """Everything is there when this returns, and every node takes jobs; after an error nothing is."""
        self._take_folder()
        try:
            self._prepare()
            self._start_accounting()
            self.start_controller()
            for name in self.node_names:
                self._start("slurmd", "-D", "-N", name, log=f"slurmd-{name}")
            self.wait_for(self.ready, 60, "nodes that take jobs")
        except BaseException:
            self.down()
            raise

    def down(self) -> None:
        """Kill every daemon and job, and take the folder away: no state is kept, so nothing is asked to end well."""
        for daemon in self._daemons.values():
            daemon.let_go()
        while self._daemons:
            self._daemons.popitem()[1].end()
        while self._held:
            self._held.pop().close()
        keeper.forget_unless_used(self.folder)

    def __enter__(self) -> Lab:
        self.up()
        return self

    def __exit__(self, *_: object) -> None:
        self.down()

    def calm(self) -> None:
        """As after ``up``: no jobs, no limit, every node."""
        if "slurmctld" not in self._daemons:
            self.start_controller()
        self.limit_submissions(None)
        self.run("scancel", "--user=root")
        for name in self.node_names:
            if f"slurmd-{name}" not in self._daemons:
                self.start_node(name)
        self.wait_for(lambda: not self.squeue() and self.ready(), 60, "an empty queue")

    # ---- what breaks

    def kill_node(self, name: str) -> None:
        """As if its power failed: SIGKILL for its daemon and all that runs on it. SLURM notices after some seconds."""
        self._daemons.pop(f"slurmd-{name}").end()

    def report_loss(self, name: str) -> None:
        """SLURM notices at once that a killed node is lost: what ran there fails with NODE_FAIL or is requeued."""
        self.run("scontrol", "update", f"nodename={name}", "state=down", "reason=lost")

    def start_node(self, name: str) -> None:
        """Bring a killed node back; it takes jobs when this returns."""
        self._start("slurmd", "-D", "-N", name, log=f"slurmd-{name}")
        self.wait_for(lambda: self.ready(name), 30, f"{name} takes jobs")

    def kill_controller(self) -> None:
        """SIGKILL for the controller: jobs go on, commands fail. It will not know what it had not saved (``save``)."""
        self._daemons.pop("slurmctld").end()

    def start_controller(self) -> None:
        """The controller, with the state that it has saved; it answers when this returns."""
        self._start("slurmctld", "-D")
        self.wait_for(lambda: self.succeeds("scontrol", "ping"), 30, "the controller answers")

    def save(self, job: str) -> None:
        """The controller has saved the queue with ``job`` when this returns. It does so by itself, up to 5 s late."""
        saved = self.folder / "state/job_state"
        before = saved.stat().st_mtime_ns if saved.exists() else 0
        self.run("scontrol", "update", f"jobid={job}", "comment=save")  # a change, so that there is something to save
        self.wait_for(lambda: saved.exists() and saved.stat().st_mtime_ns != before, 20, "a saved queue")

    def ready(self, *names: str) -> bool:
        """Whether these nodes, or all, take jobs; those that SLURM has set aside are resumed."""
        states = self.node_states()
        states = {name: states[name] for name in names or self.node_names}
        for name, state in states.items():
            if state.startswith(("DOWN", "DRAIN")) and not state.endswith("*"):
                self.run("scontrol", "update", f"nodename={name}", "state=resume")
        return all(state in TAKES_JOBS for state in states.values())

    def check(self) -> None:
        """An error when a daemon has ended by itself."""
        for daemon in [*self._daemons.values()]:  # another thread may kill a node meanwhile
            if daemon.ended:
                raise LabError(f"{daemon.name} ended\n{daemon.last_words()}")

    def report(self) -> str:
        """Queue, nodes and the last lines of the logs."""
        return "\n".join([super().report(), *(daemon.last_words() for daemon in [*self._daemons.values()])])

    # ---- how it comes up

    def _take_folder(self) -> None:
        """All of it is removed at the end, so it must not hold anything yet."""
        if len(str(self.folder)) > LONGEST_FOLDER:
            raise LabError(f"{self.folder}: at most {LONGEST_FOLDER} characters, since sockets are made in it")
        self.folder.mkdir(parents=True, exist_ok=True)
        if any(self.folder.iterdir()):
            raise LabError(f"{self.folder} is not empty; name a folder that can be removed at the end")
        self._held.append(keeper.hold(self.folder))

    def _prepare(self) -> None:
        """Folders, ports, names and configuration."""
        for name in ("run", "log", "state", "spool", "database", "tmp", "devices"):
            (self.folder / name).mkdir(mode=0o755, parents=True, exist_ok=True)
        self.folder.chmod(0o700)
        claim, ports = claim_ports(2 + self._nodes)
        self._held.append(claim)
        prefix = f"lab{ports[0]}-"
        self.node_names = [f"{prefix}{number}" for number in range(1, self._nodes + 1)]
        for name in self.node_names:
            (self.folder / "spool" / name).mkdir()
        for number in range(self._gpus):
            os.mknod(self.folder / "devices" / f"gpu{number}", 0o20666, os.makedev(1, 3))  # devices like /dev/null
        configuration.write(self.folder, prefix=prefix, ports=ports, **self._settings)
        keeper.name_hosts(self.folder, self.node_names)

    def _start_accounting(self) -> None:
        """munge, which vouches for who asks; a database that listens at a Unix socket only; slurmdbd."""
        munge, sql, log = self.folder / "run/munge.socket", self.folder / "run/sql.socket", self.folder / "log"
        key = self.folder / "munge.key"
        key.touch(mode=0o600)
        key.write_bytes(secrets.token_bytes(128))
        self._start(
            *("munged", "--foreground", "--force", f"--key-file={key}", f"--socket={munge}"),
            *(f"--pid-file={self.folder}/run/munged.pid", f"--log-file={log}/munged.log"),
            f"--seed-file={self.folder}/munge.seed",
        )
        database = ["--no-defaults", "--user=root", f"--datadir={self.folder}/database", f"--tmpdir={self.folder}/tmp"]
        database += ["--innodb-log-file-size=16M", "--skip-name-resolve"]
        self._start("mariadb-install-db", *database, "--skip-test-db", "--auth-root-authentication-method=normal")
        install = self._daemons["mariadb-install-db"]
        if install.process.wait(60) != 0:
            raise LabError(install.last_words())
        self._daemons.pop(install.name).end()
        self._start(
            *("mariadbd", *database, f"--socket={sql}", "--skip-networking", f"--pid-file={self.folder}/run/sql.pid"),
            *("--skip-log-bin", "--performance-schema=OFF", "--innodb-buffer-pool-size=64M"),
            *("--innodb-flush-log-at-trx-commit=0", "--innodb-doublewrite=0", "--innodb-lock-wait-timeout=900"),
        )
        self.wait_for(lambda: answers(sql) and answers(munge), 60, "database and munge answer")
        self._start("slurmdbd", "-D", MYSQL_UNIX_PORT=str(sql))
        self.wait_for(lambda: self.succeeds("sacctmgr", "--immediate", "add", "cluster", "lab"), 60, "slurmdbd answers")

    def _start(self, *command: str, log: str | None = None, **environment: str) -> None:
        name = log or command[0]
        self._daemons[name] = Daemon(self.folder, name, *command, **environment)


def main(arguments: Sequence[str] | None = None) -> int:
    """A lab until Ctrl-C."""
    parser = argparse.ArgumentParser(prog="python -m tests.slurm.lab", description=__doc__)
    up = parser.add_subparsers(required=True).add_parser("up", help="bring a SLURM up; Ctrl-C ends it")
    up.add_argument("--nodes", type=int, default=4, help="how many nodes (default: 4)")
    up.add_argument(
        "--folder", type=Path, help="a folder for it, removed at the end (a short path; default: a new one)"
    )
    up.add_argument("--cpus", type=int, default=4, help="CPUs that a node pretends to have (default: 4)")
    up.add_argument("--gpus", type=int, default=0, help="GPUs that a node pretends to have (default: 0)")
    up.add_argument("--max-array-size", type=int, default=21, help="array indices are below it (default: 21)")
    up.add_argument("--grace-s", type=int, default=4, help="seconds that a preempted job has left (default: 4)")
    given = vars(parser.parse_args(arguments))
    if reason := packages.why_not():
        parser.exit(1, f"error: {reason}\n")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    started = time.monotonic()
    try:
        with Lab(**given) as lab:
            print(f"# {' '.join(lab.node_names)}: up in {time.monotonic() - started:.1f} s. Here:", file=sys.stderr)
            print("# kill NODE|controller, start NODE|controller, limit COUNT, Ctrl-C. Elsewhere:", file=sys.stderr)
            print(f"export SLURM_CONF={lab.folder}/slurm.conf", flush=True)
            for words in lines_then_nothing():
                obey(lab, words)
    except KeyboardInterrupt:
        return 130
    except (LabError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def lines_then_nothing() -> Iterator[list[str]]:
    """The words of each line of standard input; when that closes, it waits for a signal."""
    for line in sys.stdin:
        if line.strip():
            yield line.split()
    while True:
        signal.pause()


def obey(lab: Lab, words: Sequence[str]) -> None:
    """Do what a line says."""
    try:
        match words:
            case ["kill", "controller"]:
                lab.kill_controller()
            case ["start", "controller"]:
                lab.start_controller()
            case ["kill", node]:
                lab.kill_node(node)
            case ["start", node] if node in lab.node_names:
                lab.start_node(node)
            case ["limit", count]:
                lab.limit_submissions(int(count))
            case _:
                print(f"what is: {' '.join(words)}", file=sys.stderr)
    except (LabError, KeyError, ValueError) as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
