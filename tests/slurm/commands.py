"""SLURM's own commands, with what they print as rows."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.slurm.daemons import SEARCH_PATH, LabError

# Variables that would lead commands elsewhere or change what they do, such as those of a job around the tests.
FOREIGN = ("SLURM", "SBATCH_", "SRUN_", "SALLOC_", "SQUEUE_", "SACCT_", "SINFO_", "SCANCEL_", "SCONTROL_")
BETWEEN = "\x1f"  # between two columns; in no name


class Commands:
    """Asks the SLURM whose files are in ``folder``."""

    folder: Path

    def environment(self) -> dict[str, str]:
        """The environment of commands that mean this SLURM and no other."""
        others = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
        return others | {"SLURM_CONF": str(self.folder / "slurm.conf"), "PATH": SEARCH_PATH}

    @contextmanager
    def leads(self) -> Iterator[None]:
        """Meanwhile the environment of this process leads to this SLURM."""
        before, after = dict(os.environ), self.environment()
        try:
            for name in before.keys() - after.keys():
                del os.environ[name]
            os.environ.update(after)
            yield
        finally:
            for name in after.keys() - before.keys():
                os.environ.pop(name, None)
            os.environ.update(before)

    def run(self, *command: str) -> str:
        """What a command prints; an error when its exit code is not 0."""
        done = self._run(*command)
        if done.returncode != 0:
            raise LabError(f"{' '.join(command)}: exit code {done.returncode}: {done.stdout}{done.stderr}")
        return done.stdout.strip()

    def succeeds(self, *command: str) -> bool:
        """Whether the exit code of a command is 0."""
        return self._run(*command).returncode == 0

    def squeue(self, *options: str) -> list[dict[str, str]]:
        """Jobs that wait or run, a row each array task: ``job, state, reason, partition, nodes, name``."""
        columns = {"job": "%i", "state": "%T", "reason": "%r", "partition": "%P", "nodes": "%N", "name": "%j"}
        form = BETWEEN.join(columns.values())
        return rows(columns, self.run("squeue", "--noheader", "--array", f"--format={form}", *options))

    def sacct(self, job: str) -> list[dict[str, str]]:
        """Every run of a job, the oldest first, a row each array task: ``job, state, exit_code, nodes, start, end``."""
        columns = {
            "job": "JobID",
            "state": "State",
            "exit_code": "ExitCode",
            "nodes": "NodeList",
            "start": "Start",
            "end": "End",
        }
        options = ["--noheader", "--allocations", "--duplicates", "--parsable2", f"--delimiter={BETWEEN}"]
        found = rows(columns, self.run("sacct", *options, f"--format={','.join(columns.values())}", f"--jobs={job}"))
        return [row | {"state": row["state"].split()[0]} for row in found]  # of "CANCELLED by 0"

    def node_states(self) -> dict[str, str]:
        """The state of each node in capitals; a star at its end: it does not answer."""
        printed = self.run("sinfo", "--noheader", "--Node", "--format=%N %T")
        return {name: state.upper() for name, state in map(str.split, printed.splitlines())}

    def limit_submissions(self, count: int | None) -> None:
        """At most ``count`` jobs of ours that wait or run, each array task counts (``None``: no limit)."""
        limit = -1 if count is None else count
        self.run("sacctmgr", "--immediate", "modify", "user", "root", "set", f"MaxSubmitJobs={limit}")

    def wait_for(self, predicate: Callable[[], object], seconds: float, what: str = "what was waited for") -> None:
        """Until ``predicate()`` is true; after ``seconds`` an error that shows queue and nodes."""
        until = time.monotonic() + seconds
        while not predicate():
            self.check()
            if time.monotonic() > until:
                raise LabError(f"{what}: not within {seconds:g} s\n{self.report()}")
            time.sleep(0.05)

    def check(self) -> None:
        """An error when there is no use in waiting."""

    def report(self) -> str:
        """Queue and nodes, as SLURM prints them."""
        asked = (("squeue", "--array"), ("sinfo", "--Node", "--long"), ("sinfo", "--list-reasons"))
        return "\n".join(done.stdout + done.stderr for done in (self._run(*command) for command in asked))

    def _run(self, *command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, env=self.environment(), capture_output=True, text=True, timeout=60)


def rows(columns: dict[str, str], printed: str) -> list[dict[str, str]]:
    """A row each line."""
    return [dict(zip(columns, line.split(BETWEEN), strict=True)) for line in printed.splitlines()]
