"""A cache over several nodes of a SLURM that is disturbed all the time must end as one calm process's does.

    python -m tests.slurm.soak [--units 300] [--views 7] [--minutes 10] [--nodes 4] [--seed 0] [--json FILE]

As root, with SLURM's packages installed (see tests/slurm). Small tars are cached by one process, and as an array on a
SLURM of its own; every few seconds something happens: a task is requeued, told to end in a while, cancelled, preempted,
its process is killed, its node dies and comes back, the controller is killed and started, two people submit at once.
Units that were given up after three deaths are put back. When the minutes are over, the command is given until nothing
is missing. Then both stores have the same bytes, and each unit that was begun more than once says why.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cluster.jobs.deaths import given_up
from tests.integration.conftest import tree
from tests.slurm.daemons import LabError
from tests.slurm.lab import Lab
from tests.slurm.runs import all_events, unexplained
from tests.stages.test_cache import TINY

ROOT = Path(__file__).resolve().parents[2]
IMAGES_A_UNIT = 14
LEAST, MOST = 2.0, 6.0  # seconds between two interruptions
PATIENCE_MINUTES = 20  # after the interruptions


class NobodyError(Exception):
    """An interruption that finds nothing to disturb: it is not counted as one."""


class Soak:
    """The work, and what happens to it."""

    def __init__(self, folder: Path, lab: Lab, units: int, views: int, seed: int) -> None:
        self.folder, self.lab, self.units = folder, lab, units
        self.rng = random.Random(seed)
        self.happened: Counter[str] = Counter()
        self.submissions = self.put_back = 0
        self.submitting: list[subprocess.Popen[bytes]] = []
        self.down: dict[str, float] = {}  # node → when it comes back
        configs = folder / "configs" / "backbone"
        configs.mkdir(parents=True)
        (configs / "tiny.yaml").write_text(TINY)
        self.settings = [
            *("--config-dir", str(folder / "configs"), "experiment=demo_digits", "backbone=tiny"),
            *(f"dataset.images_per_class={units * IMAGES_A_UNIT // 70}", f"pack.min_tars={units}"),
            *(f"cache.random_views={views}", "cache.workers=1"),
        ]
        self.environment = {**lab.environment(), "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}

    # -- the command

    def submit(self, *words: str, runs: str) -> subprocess.Popen[bytes]:
        """``submit`` in a process of its own, which writes to a log."""
        command = [sys.executable, "-m", "cluster.submit", *words, *self.settings, f"runs_root={self.folder / runs}"]
        with (self.folder / "submit.log").open("ab") as log:
            return subprocess.Popen(command, cwd=ROOT, env=self.environment, stdout=log, stderr=log)

    def local(self) -> None:
        """One calm process."""
        done = self.submit("stage=[pack,cache]", runs="calm").wait()
        assert done == 0, (self.folder / "submit.log").read_text()
        [pack] = (self.folder / "calm").glob("pack-*")
        (self.folder / "soak").mkdir()
        (self.folder / "soak" / pack.name).symlink_to(pack)

    def send(self, times: int = 1) -> None:
        """Submit what is missing, and what was given up again; several do so at once, perhaps. Nobody waits for it."""
        site = ["cluster=slurm", "cluster.cpus_per_task=1", "cluster.units_per_task=10", "cluster.max_parallel=4"]
        words = ["stage=cache", *site, "cluster.time=5", "cluster.grace_seconds=10", "cluster.partition=low"]
        gave_up = [unit for jobs in (self.folder / "soak").glob("cache-*/jobs") for unit in given_up(jobs)]
        self.put_back += len(gave_up)
        verb = ["retry"] if gave_up else []
        self.submitting += [self.submit(*verb, *words, runs="soak") for _ in range(times)]
        self.submissions += times

    def sending(self) -> bool:
        """Whether somebody still submits."""
        self.submitting = [process for process in self.submitting if process.poll() is None]
        return bool(self.submitting)

    # -- what happens

    def disturb(self) -> None:
        """One of all that may happen, to somebody."""
        kinds: list[Callable[[], None]] = [
            *(self.requeue, self.tell, self.cancel, self.kill, self.kill),
            *(self.node, self.controller, self.preempt, self.two_submit),
        ]
        kind = self.rng.choice(kinds)
        try:
            for name in [name for name, back in self.down.items() if back < time.monotonic()]:
                self.lab.start_node(name)
                del self.down[name]
            kind()
        except NobodyError:
            return
        except (subprocess.SubprocessError, LabError) as error:
            self.happened[f"{kind.__name__}: did not work"] += 1
            print(error, flush=True)
        else:
            self.happened[kind.__name__] += 1

    def running(self) -> list[str]:
        """Ids of the tasks that run."""
        lines = self.ask("squeue", "--noheader", "--array", "--states=RUNNING", "--format=%i %j").splitlines()
        return [line.split()[0] for line in lines if "hedgerow" in line]

    def ask(self, *command: str) -> str:
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=60)
        return done.stdout

    def somebody(self) -> str:
        if not (tasks := self.running()):
            raise NobodyError
        return self.rng.choice(tasks)

    def requeue(self) -> None:
        self.ask("scontrol", "requeue", self.somebody())

    def tell(self) -> None:
        self.ask("scancel", "--signal=USR2", self.somebody())

    def cancel(self) -> None:
        self.ask("scancel", self.somebody())

    def kill(self) -> None:
        """The process that does the work, as the system does for want of memory."""
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            try:
                words = (process / "cmdline").read_bytes().split(b"\0")
                environ = (process / "environ").read_bytes()
            except OSError:
                continue
            ours = f"SLURM_CONF={self.environment['SLURM_CONF']}".encode() in environ
            if ours and b"submitit.core._submit" in words and b"python" in Path(os.fsdecode(words[0])).name.encode():
                found.append(int(process.name))
        if not found:
            raise NobodyError
        os.kill(self.rng.choice(found), signal.SIGKILL)

    def node(self) -> None:
        up = [name for name in self.lab.node_names if name not in self.down]
        if len(up) <= 2:
            raise NobodyError
        name = self.rng.choice(up)
        self.down[name] = time.monotonic() + self.rng.uniform(5, 20)
        self.lab.kill_node(name)

    def controller(self) -> None:
        self.lab.kill_controller()
        time.sleep(self.rng.uniform(0, 5))
        self.lab.start_controller()

    def preempt(self) -> None:
        """A job that needs a whole node at once."""
        self.ask("sbatch", "--partition=high", "--exclusive", "--output=/dev/null", "--wrap", "sleep 5")

    def two_submit(self) -> None:
        self.send(2)

    # -- the end

    def missing(self) -> int:
        """Units without a commit record."""
        return self.units - len(list((self.folder / "soak").glob("cache-*/store/commits/*.json")))

    def idle(self) -> bool:
        """No task waits or runs."""
        return "hedgerow" not in self.ask("squeue", "--noheader", "--format=%j")


def soak(units: int, views: int, minutes: float, nodes: int, seed: int) -> dict[str, Any]:
    """All of it; what came out."""
    with tempfile.TemporaryDirectory(prefix="soak-") as name, Lab(nodes) as lab:
        made = Soak(Path(name), lab, units, views, seed)
        start = time.monotonic()
        made.local()
        print(f"{time.monotonic() - start:.0f} s: the calm process is done", flush=True)
        start = time.monotonic()
        made.send()
        while time.monotonic() - start < 60 * minutes and made.missing():
            time.sleep(made.rng.uniform(LEAST, MOST))
            made.disturb()
            if not made.sending() and made.idle() and made.missing():
                made.send()
            print(f"{time.monotonic() - start:.0f} s: {made.missing()} missing, {dict(made.happened)}", flush=True)
        disturbed = time.monotonic() - start
        for node in made.down:
            lab.start_node(node)
        while made.missing() and time.monotonic() - start < 60 * (minutes + PATIENCE_MINUTES):
            if not made.sending() and made.idle():
                made.send()
            time.sleep(2)
        for process in made.submitting:
            process.wait()
        [calm] = (made.folder / "calm").glob("cache-*")
        [ours] = (made.folder / "soak").glob("cache-*")
        one, other, found = tree(calm / "store"), tree(ours / "store"), all_events(ours / "jobs")
        return {
            "units": units,
            "views": views,
            "nodes": nodes,
            "seed": seed,
            "disturbed_s": round(disturbed),
            "whole_s": round(time.monotonic() - start),
            "interruptions": dict(made.happened),
            "submissions": made.submissions,
            "put_back": made.put_back,
            "events": dict(Counter(event.event for event in found)),
            "units_begun_more_than_once": sum(
                count > 1 for count in Counter(event.unit for event in found if event.event == "unit").values()
            ),
            "missing": made.missing(),
            "objects": len(one),
            "objects_that_differ": len(set(one.items()) ^ set(other.items())),
            "unexplained": unexplained(found),
        }


def main() -> int:
    """Soak, print, and say with the exit code whether all is well."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--units", type=int, default=300)
    parser.add_argument("--views", type=int, default=7, help="random views an image: how long a unit takes")
    parser.add_argument("--minutes", type=float, default=10, help="of interruptions")
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    result = soak(arguments.units, arguments.views, arguments.minutes, arguments.nodes, arguments.seed)
    text = json.dumps(result, indent=2)
    print(text)
    if arguments.json:
        arguments.json.write_text(text + "\n")
    return 1 if result["missing"] or result["objects_that_differ"] or result["unexplained"] else 0


if __name__ == "__main__":
    sys.exit(main())
