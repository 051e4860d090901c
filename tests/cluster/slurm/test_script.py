"""What the batch script does once the work has ended: who goes back into the queue, and who does not."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from cluster.jobs.history import INTERRUPTED, STOPPED
from cluster.jobs.journal import Journal, What, journal_path
from cluster.slurm.script import after
from tests.cluster.slurm.conftest import Commands

Said = list[tuple[What, str | None]]


def ends(folder: Path, commands: Commands, code: int, *, restart: int = 1) -> tuple[int, bool]:
    """The exit code of a script whose work ends with ``code``, and whether it asked for its task to be requeued."""
    commands.answer("scontrol", "JobState=RUNNING\n")
    commands.answer("sleep")
    told = {"SLURM_JOB_ID": "9", "SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "1"}
    lines = [f"(exit {code})", *after(True, folder)]
    env = {"PATH": f"{commands.folder}:/usr/bin:/bin", "SLURM_RESTART_COUNT": str(restart), **told}
    done = subprocess.run(["bash", "-u", "-c", "\n".join(lines)], env=env, capture_output=True)
    return done.returncode, "requeue 7_1" in commands.asked("scontrol")


@pytest.mark.parametrize(
    ("code", "again"), [(0, False), (1, False), (83, False), (84, False), (85, True), (137, True), (143, True)]
)
def test_who_was_interrupted_or_killed_goes_on(tmp_path: Path, commands: Commands, code: int, again: bool) -> None:
    assert ends(tmp_path, commands, code) == (code, again)


@pytest.mark.parametrize(
    ("ranks", "code", "again"),
    [
        ([[("started", None), ("unit", None)]], 137, True),  # it was killed
        ([[("started", None), ("ended", None)], [("started", None)]], 137, True),  # another rank was
        ([[("unit", None), ("ended", INTERRUPTED)]], 85, True),  # a child was; the task's time ended later
        ([[("started", None), ("ended", STOPPED)]], 1, False),
        ([[("started", None), ("ended", "a worker died")]], 1, False),
        ([], 1, False),  # Python could not begin
    ],
)
def test_where_memory_was_short_the_journals_tell_how_it_ended(
    tmp_path: Path, commands: Commands, ranks: list[Said], code: int, again: bool
) -> None:
    """srun ends with 1 there, whatever its processes ended with ("task 0: Out Of Memory")."""
    folder = tmp_path / "it's a földer"
    for rank, said in enumerate(ranks):
        journal = Journal(journal_path(folder, "7_1", rank), host="h", node="n", restart=1)
        for event, reason in said:
            journal.note(event, reason=reason)
    assert ends(folder, commands, 1) == (code, again)
    assert ends(folder, commands, 1, restart=2)[0] == 1, "the journals are of an earlier start"
