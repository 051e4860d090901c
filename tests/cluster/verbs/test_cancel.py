"""``submit cancel``: the jobs of this run, and no others."""

from __future__ import annotations

from pathlib import Path

import pytest

from cluster.jobs.cancelled import read_cancelled
from cluster.jobs.cancelling import cancel_jobs
from cluster.jobs.queue import QueueError
from cluster.jobs.submissions import submissions
from tests.cluster.verbs.conftest import Run


@pytest.fixture
def chain(run: Run) -> dict[str, Path]:
    """Two submissions of the first stage and one of each that waits for it; some tasks are over."""
    run.commands.answer("scancel")
    folders = {
        "old": run.submitted("gather", {"12": [["0"], ["1"]]}),
        "gather": run.submitted("gather", {"20": [["0"], ["1"]], "21": [["2"]]}),
        "train": run.submitted("train", {"22": [(0, 1)]}, after=["20", "21"]),
        "evaluate": run.submitted("evaluate", {"23": [(0, 1)]}, after=["22"]),
    }
    run.queue(
        ("12_0", "RUNNING", "None", Path("/of/another/run")),  # the number was given again
        ("12_1", "RUNNING", "None", Path("/of/another/run")),
        ("20_1", "RUNNING", "None", folders["gather"]),
        ("21", "PENDING", "Priority", folders["gather"]),
        ("22", "PENDING", "Dependency", folders["train"]),
        ("23", "PENDING", "DependencyNeverSatisfied", folders["evaluate"]),
        ("77", "RUNNING", "None", Path("/of/another/run")),
    )
    return folders


def records(run: Run, *links: str) -> dict[str, list]:  # type: ignore[type-arg]
    return {link: list(submissions(run.jobs(link))) for link in links}


def test_the_end_of_the_chain_goes_first_and_nothing_of_others(run: Run, chain: dict[str, Path]) -> None:
    ended = cancel_jobs(records(run, "gather", "train", "evaluate"))
    assert run.commands.asked("scancel") == ["22", "21 20"]
    assert [(item.link, item.job, dict(item.states)) for item in ended] == [
        ("train", "22", {"PENDING": 1}),
        ("gather", "21", {"PENDING": 1}),
        ("gather", "20", {"RUNNING": 1}),
    ]
    assert {name for name, folder in chain.items() if read_cancelled(folder)} == {"gather", "train"}


def test_only_the_chosen_stages(run: Run, chain: dict[str, Path]) -> None:
    cancel_jobs(records(run, "train"))
    assert run.commands.asked("scancel") == ["22"]


def test_nothing_is_cancelled_while_nobody_can_tell_what_runs(run: Run, chain: dict[str, Path]) -> None:
    run.commands.answer("squeue", code=1, error="Unable to contact slurm controller\n")
    with pytest.raises(QueueError, match="Unable to contact"):
        cancel_jobs(records(run, "gather"))
    assert run.commands.asked("scancel") == []
    assert not any(read_cancelled(folder) for folder in chain.values())


def test_of_others_nothing_is_asked(run: Run, chain: dict[str, Path]) -> None:
    """Jobs of other users are none that this user can cancel."""
    cancel_jobs(records(run, "gather"))
    [question] = run.commands.asked("squeue")
    assert "--user=nobody" not in question
    assert "--user=" in question
