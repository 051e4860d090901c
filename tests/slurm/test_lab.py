"""What we lean on in SLURM, and that a lab leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.slurm import keeper
from tests.slurm.daemons import LabError
from tests.slurm.lab import Lab

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("slurm")]


def sbatch(lab: Lab, script: str, *options: str) -> str:
    """The id of a job."""
    return lab.run("sbatch", "--parsable", "--output=/dev/null", *options, f"--wrap={script}")


def states(lab: Lab, job: str) -> list[str]:
    return [row["state"] for row in lab.sacct(job)]


def place(lab: Lab, job: str) -> str:
    """The node where it runs, or nothing."""
    return next((row["nodes"] for row in lab.squeue(f"--jobs={job}") if row["state"] == "RUNNING"), "")


def lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


def test_an_array_runs_on_names_that_lead_here(lab: Lab, tmp_path: Path) -> None:
    script = f"getent hosts $SLURMD_NODENAME > '{tmp_path}'/$SLURM_ARRAY_TASK_ID"
    job = sbatch(lab, script, "--array=0-3%2")
    lab.wait_for(lambda: states(lab, job) == ["COMPLETED"] * 4, 20, "four tasks completed")
    assert {row["job"] for row in lab.sacct(job)} == {f"{job}_{task}" for task in range(4)}
    for task in range(4):
        address, *names = (tmp_path / str(task)).read_text().split()
        assert address == "127.0.0.1"
        assert set(names) == set(lab.node_names)


def test_what_is_too_much_is_refused(lab: Lab) -> None:
    with pytest.raises(LabError, match="Invalid job array specification"):
        sbatch(lab, "true", "--array=0-4")
    assert sbatch(lab, "true", "--array=0-3")
    lab.limit_submissions(2)
    with pytest.raises(LabError, match="AssocMaxSubmitJobLimit"):
        sbatch(lab, "true", "--hold", "--array=0-2")
    assert lab.run("sacctmgr", "--noheader", "list", "associations", "user=root", "format=MaxSubmitJobs") == "2"


def test_a_requeued_job_counts_its_restarts(lab: Lab, tmp_path: Path) -> None:
    out = tmp_path / "restarts"
    job = sbatch(lab, f"echo ${{SLURM_RESTART_COUNT:-0}} >> '{out}'; sleep 60")
    lab.wait_for(lambda: lines(out) == ["0"], 20, "the first start")
    lab.run("scontrol", "requeue", job)
    lab.wait_for(lambda: lines(out) == ["0", "1"], 30, "the second start")
    assert states(lab, job)[0] == "REQUEUED"


def test_a_job_of_a_killed_node_goes_on_elsewhere(lab: Lab, tmp_path: Path) -> None:
    out = tmp_path / "pids"
    job = sbatch(lab, f"echo $$ >> '{out}'; [ ${{SLURM_RESTART_COUNT:-0}} = 1 ] || exec sleep 300")
    lab.wait_for(lambda: place(lab, job) and lines(out), 20, "a start")
    node = place(lab, job)
    lab.kill_node(node)
    assert not Path("/proc", lines(out)[0]).exists()
    lab.wait_for(lambda: states(lab, job) == ["NODE_FAIL", "COMPLETED"], 60, "SLURM to notice")
    assert lab.sacct(job)[0]["nodes"] == node != lab.sacct(job)[1]["nodes"]
    lab.start_node(node)
    assert lab.ready(node)


def test_a_killed_controller_keeps_the_queue(lab: Lab) -> None:
    sbatch(lab, "true", "--hold", "--array=0-2")
    running = sbatch(lab, "exec sleep 60")
    lab.wait_for(lambda: place(lab, running), 20, "a start")
    before = sorted(lab.squeue(), key=str)
    lab.save(running)
    lab.kill_controller()
    assert not lab.succeeds("squeue")
    lab.start_controller()
    assert len(before) == 4
    assert sorted(lab.squeue(), key=str) == before


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_nothing_is_left_however_it_ends(lab: Lab, tmp_path: Path, how: signal.Signals) -> None:
    folder = Path(f"/tmp/lab-{os.getpid()}-{how}")
    command = [sys.executable, "-m", "tests.slurm.lab", "up", "--nodes=1", f"--folder={folder}"]
    root = Path(__file__).parents[2]
    with subprocess.Popen(
        command, cwd=root, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == f"export SLURM_CONF={folder}/slurm.conf\n"
        # a job that hides: no name of the lab in its environment, no parent, deaf to signals
        hidden = f"trap '' TERM; env -i setsid sleep 300 & echo $! > '{tmp_path}/pid'"
        environment = os.environ | {"SLURM_CONF": f"{folder}/slurm.conf"}
        subprocess.run(["sbatch", "--output=/dev/null", f"--wrap={hidden}"], env=environment, check=True)
        pid = tmp_path / "pid"
        lab.wait_for(lambda: lines(pid), 20, "the job of the other lab")
        assert Path("/proc", lines(pid)[0]).exists()
        assert len(speaking_of(folder)) >= 10
        assert str(folder) in keeper.HOSTS.read_text()
        other.send_signal(how)
        other.communicate(timeout=20)
    if how != signal.SIGKILL:
        assert not folder.exists()
    until = time.monotonic() + 10
    while speaking_of(folder) and time.monotonic() < until:
        time.sleep(0.05)
    assert speaking_of(folder) == []
    assert not folder.exists()
    assert not Path("/proc", lines(pid)[0]).exists()
    assert str(folder) not in keeper.HOSTS.read_text()
    assert lab.ready()


def speaking_of(folder: Path) -> list[str]:
    """Processes with ``folder`` in their command line or environment."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            known = (process / "cmdline").read_bytes() + (process / "environ").read_bytes()
        except OSError:
            continue
        if os.fsencode(folder) in known:
            found.append(process.name)
    return found
