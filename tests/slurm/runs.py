"""``submit … cluster=slurm`` as a user gives it, on the digits in small, and what its records say."""

from __future__ import annotations

import threading
from pathlib import Path
from shlex import quote

import yaml

from cluster.jobs.journal import FOLDER, Event, read_journal
from cluster.jobs.submissions import Job, submissions
from tests.integration.conftest import finish, one, tree
from tests.slurm.lab import Lab

SLOW_MACHINE = Path(__file__).parent / "slow_machine"
SUBMITTING = threading.Lock()  # the command runs in this process, which has one working folder and one standard output
SMALLER = ("evaluate.compare=[]", "train_head.steps=100")
LONG = 240.0  # seconds that a busy machine may need for what takes some

# As long as the machine is slow, a unit of 47 images takes over two minutes: what happens to all tasks once all are at
# work happens in the middle of a unit, however late the last of them came. Journals flush, too.
SECONDS_AN_IMAGE, SECONDS_A_FLUSH = 3.0, 0.1


class Run:
    """A stage in a folder of runs of its own.

    Args:
        lab: where its jobs run.
        folder: new.
        calm: the run folders of the whole chain, undisturbed; those of ``given`` stages are taken from there.
        stage: what is submitted.
        site: further keys of the cluster.
    """

    def __init__(
        self,
        lab: Lab,
        folder: Path,
        calm: Path,
        *,
        stage: str = "cache",
        given: tuple[str, ...] = ("pack",),
        **site: object,
    ) -> None:
        self.lab, self.folder, self.stage = lab, folder, stage
        (folder / "configs" / "cluster").mkdir(parents=True)
        for name in given:
            (folder / one(calm, name).name).symlink_to(one(calm, name))
        self.slow = folder / "slow"
        self.slow.write_text(f"{SECONDS_AN_IMAGE} {SECONDS_A_FLUSH}")
        setup = [f"export SLOW_WHILE={quote(str(self.slow))} PYTHONPATH={quote(str(SLOW_MACHINE))}:$PYTHONPATH"]
        values = {
            "kind": "slurm",
            "cpus_per_task": 1,
            "time": 10,
            "grace_seconds": 10,
            "code": "installed",
            "setup": setup,
        }
        (folder / "configs" / "cluster" / "here.yaml").write_text(yaml.safe_dump({**values, **site}))

    # -- what a user does

    @property
    def words(self) -> tuple[str, ...]:
        """The command's."""
        site = ("cluster=here", "--config-dir", f"{self.folder}/configs")
        return (*SMALLER, f"stage={self.stage}", *site, "cache.workers=1")

    def submit(self, *, code: int = 0) -> str:
        """What the command prints; it must end with ``code``."""
        with SUBMITTING:
            return finish(self.folder, *self.words, code=code)

    def status(self) -> str:
        """What ``submit status`` prints."""
        with SUBMITTING:
            return finish(self.folder, "status", *self.words)

    # -- what its records say

    @property
    def jobs_folder(self) -> Path:
        """Of the stage's job records."""
        return one(self.folder, self.stage) / "jobs"

    def jobs(self) -> list[Job]:
        """Of all submissions."""
        return [job for submitted in submissions(self.jobs_folder) for job in submitted.jobs]

    def task(self) -> str:
        """Id of its last task."""
        return list(self.jobs()[-1].tasks())[-1]

    def events(self, task: str = "*") -> list[Event]:
        """Of a task, or all; by time."""
        return all_events(self.jobs_folder, task)

    def at_work(self) -> set[str]:
        """The tasks that are at a unit."""
        tasks = [task for job in self.jobs() for task in job.tasks()]
        return {task for task in tasks if [event.event for event in self.events(task)][-1:] == ["unit"]}

    def node(self, task: str) -> str:
        """Where a task was started last."""
        return [event.node for event in self.events(task) if event.event == "started"][-1]

    def is_queued(self) -> bool:
        """Whether something of it waits or runs."""
        ours = {job.id for job in self.jobs()}
        return any(row["job"].split("_")[0] in ours for row in self.lab.squeue())

    # -- waiting

    def wait_until_all_work(self) -> None:
        """Every task is at a unit."""
        count = sum(len(job.work) for job in self.jobs())
        self.lab.wait_for(lambda: len(self.at_work()) == count, LONG, f"{count} tasks of {self.folder.name} at work")

    def wait_for_event(self, task: str, name: str) -> Event:
        """The first of its kind."""

        def found() -> list[Event]:
            return [event for event in self.events(task) if event.event == name]

        self.lab.wait_for(found, LONG, f"{self.folder.name}: '{name}' of {task}")
        return found()[0]

    def wait_for_end(self) -> None:
        """At full speed from now on, until nothing of it waits or runs."""
        self.slow.unlink(missing_ok=True)
        self.lab.wait_for(lambda: not self.is_queued(), LONG, f"{self.folder.name} to end")

    # -- how it must be at the end

    def problems(self, calm: Path) -> list[str]:
        """What differs from the calm run's store, and units that were done again without a reason."""
        mine, calms = (store(runs) for runs in (self.folder, calm))
        differing = [name for name in sorted(mine.keys() | calms.keys()) if mine.get(name) != calms.get(name)]
        return [*(f"{name} differs" for name in differing), *unexplained(self.events())]


def store(runs: Path) -> dict[str, str]:
    """The bytes of the store, without what the probe writes into it later."""
    found = tree(one(runs, "cache") / "store")
    return {
        name: sha
        for name, sha in found.items()
        if name.split("/")[0] not in ("probe", "task_loss", "entropy", "top1_correct")
    }


def all_events(jobs: Path, task: str = "*") -> list[Event]:
    """What the journals of a stage say, of a task or of all; by time."""
    paths = jobs.glob(f"*/{FOLDER}/{task}.*.jsonl")
    return sorted((event for path in paths for event in read_journal(path)), key=lambda event: event.time)


def unexplained(events: list[Event]) -> list[str]:
    """Units that were committed twice, or begun anew while no record says how the time before ended."""
    problems, last = [], dict[str, Event]()
    for event in events:
        if event.unit is None or event.event not in ("unit", "done", "dropped", "failed"):
            continue
        before = last.get(event.unit)
        ended = before is None or before.event in ("dropped", "failed") or (before.event == "unit" and event.reason)
        if event.event == "unit" and not ended:
            problems.append(f"unit {event.unit} was begun again, without a reason")
        last[event.unit] = event
    return problems
