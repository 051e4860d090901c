"""Whatever befalls the tasks of a run: it ends as a calm one does, byte for byte, and does nothing twice for no reason.

All runs go on side by side, since much of it is waiting; the tests look at what came of each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path

import pytest

from cluster.jobs.deaths import given_up
from pipeline.files import sha256_file
from tests.integration.conftest import one, start
from tests.slurm.lab import Lab
from tests.slurm.runs import LONG, Run

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("slurm"), pytest.mark.timeout(900)]

Make = Callable[..., Run]


def calm_node(lab: Lab) -> dict[str, object]:
    """What sends a job to the one node to which nothing happens."""
    return {"exclude": ",".join(lab.node_names[1:])}


def large_array_submitted_twice_at_once(make: Make, lab: Lab) -> Run:
    run = make(units_per_task=1)
    run.slow.unlink()
    for process in [start(run.folder, *run.words) for _ in range(2)]:
        said, _ = process.communicate()
        assert process.returncode == 0, said.decode()
    run.wait_for_end()
    return run


def requeue(make: Make, lab: Lab) -> Run:
    """The last task of an array, whose own id is that of the array."""
    run = make(units_per_task=3)
    run.submit()
    run.wait_until_all_work()
    lab.run("scontrol", "requeue", run.task())
    run.wait_for_event(run.task(), "dropped")
    run.wait_for_end()
    return run


def preemption(make: Make, lab: Lab) -> Run:
    """By a job of another partition that needs the whole node."""
    run = make(partition="low", sbatch={"nodelist": lab.node_names[1]})
    run.submit()
    run.wait_until_all_work()
    needs = ["--partition=high", "--exclusive", f"--nodelist={lab.node_names[1]}"]
    lab.run("sbatch", *needs, "--output=/dev/null", "--wrap=true")
    run.wait_for_event(run.task(), "dropped")
    run.wait_for_end()
    return run


def time_limit(make: Make, lab: Lab) -> Run:
    run = make()
    run.submit()
    run.wait_until_all_work()
    lab.run("scontrol", "update", f"jobid={run.task()}", "EndTime=now+40seconds")
    run.wait_for_event(run.task(), "dropped")
    lab.run("scontrol", "update", f"jobid={run.task()}", "TimeLimit=10")
    run.wait_for_end()
    return run


def cancelled_and_sent_again(run: Run, lab: Lab) -> Run:
    """Once it has gone by itself."""
    lab.run("scancel", run.task())
    lab.wait_for(lambda: not run.is_queued(), LONG, "the cancelled job to go")
    run.slow.unlink()
    run.submit()
    run.wait_for_end()
    return run


def scancel(make: Make, lab: Lab) -> Run:
    run = make()
    run.submit()
    run.wait_until_all_work()
    return cancelled_and_sent_again(run, lab)


def scancel_as_the_time_ends(make: Make, lab: Lab) -> Run:
    """Told first that its time ends, after which it would come back by itself, and then cancelled."""
    run = make()
    run.submit()
    run.wait_until_all_work()
    lab.run("scancel", "--signal=USR2", run.task())
    return cancelled_and_sent_again(run, lab)


def hold_and_release(make: Make, lab: Lab) -> Run:
    """An array that waits is held, and released."""
    run = make(units_per_task=3, sbatch={"begin": "now+1hour", **calm_node(lab)})
    run.slow.unlink()
    run.submit()
    (job,) = run.jobs()
    lab.run("scontrol", "hold", job.id)
    assert "PENDING 2 (JobHeldAdmin)" in run.status()  # root holds as one
    assert f"2 tasks of an earlier submission go on (job {job.id})" in run.submit()
    lab.run("scontrol", "release", job.id)
    lab.run("scontrol", "update", f"jobid={job.id}", "StartTime=now")
    run.wait_for_end()
    return run


def lost_node(make: Make, lab: Lab) -> Run:
    run = make(sbatch={"exclude": ",".join(lab.node_names[:2])})
    run.submit()
    run.wait_until_all_work()
    lab.kill_node(run.node(run.task()))
    run.wait_for_end()
    return run


def requeue_of_training(make: Make, lab: Lab) -> Run:
    run = make(stage="train_head", given=("pack", "cache", "probe"))
    run.submit()
    run.wait_until_all_work()
    checkpoint = one(run.folder, "train_head") / "checkpoint.safetensors"
    lab.wait_for(checkpoint.exists, LONG, "a checkpoint")
    lab.run("scontrol", "requeue", run.task())
    run.wait_for_event(run.task(), "dropped")
    run.wait_for_end()
    return run


def lost_controller(make: Make, lab: Lab, others: list[Future[Run]]) -> Run:
    """When nobody else needs it any more."""
    run = make()
    run.slow.write_text("5 0.1")
    run.submit()
    run.wait_until_all_work()
    wait(others)
    assert run.at_work(), "it should still be at work"
    lab.save(run.task())
    lab.kill_controller()
    said = run.submit(code=1)
    lab.start_controller()
    assert "nobody can tell which of its jobs still run" in said
    assert "go on" in run.submit()
    run.wait_for_end()
    return run


SCENARIOS = (
    *(large_array_submitted_twice_at_once, requeue, preemption, time_limit, scancel),
    *(scancel_as_the_time_ends, hold_and_release, lost_node, requeue_of_training),
    lost_controller,  # last: it waits for the others
)


@pytest.fixture(scope="module")
def runs(
    lab: Lab, calm: Path, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Mapping[str, Future[Run]]]:
    """What came of each scenario whose test is chosen."""

    def making(name: str) -> Make:
        folder = tmp_path_factory.mktemp(name) / "it's a rün"  # a legal path
        return lambda **site: Run(lab, folder, calm, **{"units_per_task": 9, "sbatch": calm_node(lab), **site})

    chosen = {item.name.removeprefix("test_") for item in request.session.items}
    found: dict[str, Future[Run]] = {}
    with lab.leads(), ThreadPoolExecutor(len(SCENARIOS)) as pool:
        for scenario in SCENARIOS:
            if (name := scenario.__name__) in chosen:
                others = [[*found.values()]] if scenario is lost_controller else []
                found[name] = pool.submit(scenario, making(name), lab, *others)
        wait(found.values())
        yield found


def calm_in_the_end(run: Run, calm: Path) -> Run:
    """It ended as the calm run did."""
    assert run.problems(calm) == []
    assert given_up(run.jobs_folder) == {}
    assert "nothing to do" in run.submit()
    return run


def events(run: Run, name: str) -> list[tuple[int, str | None]]:
    """How often the task had been started before, and the reason that it noted."""
    return [(event.restart, event.reason) for event in run.events() if event.event == name]


Runs = Mapping[str, "Future[Run]"]


def test_large_array_submitted_twice_at_once(runs: Runs, calm: Path) -> None:
    run = calm_in_the_end(runs["large_array_submitted_twice_at_once"].result(), calm)
    assert [len(job.work) for job in run.jobs()] == [3, 3]
    assert events(run, "done") == [(0, None)] * 6


def test_requeue(runs: Runs, calm: Path, lab: Lab) -> None:
    run = calm_in_the_end(runs["requeue"].result(), calm)
    assert events(run, "dropped") == [(0, "told to end")]
    assert [event.restart for event in run.events(run.task()) if event.event == "started"] == [0, 1]
    assert len(events(run, "started")) == 3, "the other task of the array was left alone"


def test_preemption(runs: Runs, calm: Path, lab: Lab) -> None:
    run = calm_in_the_end(runs["preemption"].result(), calm)
    assert events(run, "dropped") == [(0, "preempted")]
    assert [restart for restart, _ in events(run, "started")] == [0, 1]
    assert lab.sacct(run.task())[0]["state"] in ("PREEMPTED", "REQUEUED")  # by SLURM, or by itself before


def test_time_limit(runs: Runs, calm: Path) -> None:
    run = calm_in_the_end(runs["time_limit"].result(), calm)
    assert events(run, "dropped") == [(0, "preempted")]  # so it seems, for the job began with another limit
    assert [restart for restart, _ in events(run, "started")] == [0, 1]


def test_scancel(runs: Runs, calm: Path, lab: Lab) -> None:
    run = calm_in_the_end(runs["scancel"].result(), calm)
    assert events(run, "dropped") == [(0, "told to end")]
    first, second = run.jobs()
    assert [row["state"] for job in (first, second) for row in lab.sacct(job.id)] == ["CANCELLED", "COMPLETED"]


def test_scancel_as_the_time_ends(runs: Runs, calm: Path, lab: Lab) -> None:
    run = calm_in_the_end(runs["scancel_as_the_time_ends"].result(), calm)
    assert [restart for restart, _ in events(run, "started")] == [0, 0], "it did not come back by itself"
    first, second = run.jobs()
    assert [row["state"] for job in (first, second) for row in lab.sacct(job.id)] == ["CANCELLED", "COMPLETED"]


def test_hold_and_release(runs: Runs, calm: Path) -> None:
    run = calm_in_the_end(runs["hold_and_release"].result(), calm)
    assert [len(job.work) for job in run.jobs()] == [2], "nothing was submitted twice"
    assert events(run, "done") == [(0, None)] * 6


def test_lost_node(runs: Runs, calm: Path, lab: Lab) -> None:
    run = calm_in_the_end(runs["lost_node"].result(), calm)
    first, second = lab.sacct(run.task())
    assert (first["state"], second["state"]) == ("NODE_FAIL", "COMPLETED")
    assert first["nodes"] != second["nodes"]
    assert events(run, "dropped") == []
    (again,) = [reason for restart, reason in events(run, "unit") if reason]
    assert again.endswith("was ended and its task started anew")


def test_requeue_of_training(runs: Runs, calm: Path) -> None:
    run = runs["requeue_of_training"].result()
    assert events(run, "dropped") == [(0, "told to end")]
    assert [restart for restart, _ in events(run, "done")] == [1]
    for seed in (0, 1):
        head = f"seed-{seed}/head.safetensors"
        assert sha256_file(one(run.folder, "train_head") / head) == sha256_file(one(calm, "train_head") / head)


def test_lost_controller(runs: Runs, calm: Path) -> None:
    run = calm_in_the_end(runs["lost_controller"].result(), calm)
    assert [restart for restart, _ in events(run, "started")] == [0]
