"""Every unit is in one task, no array is larger than the cluster takes, times mean what SLURM means by them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.jobs.submissions import Work
from cluster.slurm import code
from cluster.slurm.cutting import Limits, arrays, cut, fewer, limits, shares
from cluster.slurm.resources import Resources, SlurmConfig, minutes
from pipeline.config import parse
from pipeline.errors import UserError
from tests.cluster.slurm.conftest import Commands


@given(st.integers(0, 300), st.integers(1, 40), st.one_of(st.none(), st.integers(1, 50)), st.integers(1, 60))
def test_units_are_cut_within_the_limits(count: int, each: int, most: int | None, array: int) -> None:
    units = [f"{i:06d}" for i in range(count)]
    tasks = cut(units, Resources(units_per_task=each), most)
    assert [unit for task in tasks for unit in task.units or ()] == units
    assert all(task.units for task in tasks)
    if most is not None:
        assert len(tasks) <= most
    if most is None or count <= each * most:
        assert all(len(task.units or ()) <= each for task in tasks)
    parts = arrays(tasks, array)
    assert [task for part in parts for task in part] == tasks
    sizes = [len(part) for part in parts]
    assert all(0 < size <= array for size in sizes)
    assert len(parts) == -(-len(tasks) // array)


def test_shares_are_as_many_as_may_run_at_once() -> None:
    assert [work.share for work in shares(Resources(max_parallel=3), None)] == [(0, 3), (1, 3), (2, 3)]
    assert len(shares(Resources(max_parallel=9), 4)) == 4


POLICY = "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)"


@pytest.mark.parametrize(
    ("said", "told"),
    [  # as SLURM 22.05 and later write them; POLICY is said of all limits
        (["QOSMaxSubmitJobPerUserLimit", POLICY], None),
        (["AssocGrpSubmitJobsLimit", POLICY], None),
        (["MaxSubmitJobsPerAccount", POLICY], None),
        ([POLICY], None),  # older ones did not say which
        (["QOSMaxWallDurationPerJobLimit", POLICY], "refused the job: QOSMaxWallDurationPerJobLimit: Batch job.*time"),
        (["AssocMaxCpuPerJobLimit", POLICY], "refused the job: AssocMaxCpuPerJobLimit"),
        (["Invalid account or account/partition combination specified"], "refused .*account"),
        (["Socket timed out on send/recv operation"], "no answer .*timed out.* tries again"),
        (["Unable to contact slurm controller (connect failure)"], "no answer .*tries again"),
        (["Slurm temporarily unable to accept job, sleeping and retrying", "Resource temporarily unavailable"], "busy"),
    ],
)
def test_fewer_tasks_are_tried_only_where_there_are_too_many(said: list[str], told: str | None) -> None:
    """A job that is too long or too large stays so in any number of tasks."""
    *before, last = said
    text = "".join(f"sbatch: error: {line}\n" for line in [*before, f"Batch job submission failed: {last}"])
    tasks = [Work(units=(name,)) for name in "abcd"]
    if told is None:
        assert fewer(tasks, text) == [[Work(units=("a", "b")), Work(units=("c", "d"))]]
    else:
        with pytest.raises(UserError, match=told):
            fewer(tasks, text)


def test_limits_are_what_the_cluster_says(commands: Commands) -> None:
    assert limits(Resources()) == Limits(array=1001, submit=None), "nobody answers: SLURM's default"
    commands.answer("scontrol", "Configuration data as of …\nMaxArraySize            = 21\nMaxJobCount = 9\n")
    commands.answer("sacctmgr", "500|40\n")
    assert limits(Resources(account="a", qos="q")) == Limits(array=21, submit=40)
    assert [line.split(" format")[0].split(" ", 3)[-1] for line in commands.asked("sacctmgr")][-1].endswith("q")
    for rows, submit in {"2|\n90|300\n|70\n": 90, "2|\n|\n": None, "": None}.items():
        commands.answer("sacctmgr", rows)
        assert limits(Resources()).submit == submit, "of several accounts the one that allows most: sbatch tells"
    commands.answer("scontrol", "MaxArraySize = 100001\nSchedulerParameters = defer,max_array_tasks=1000,nohold\n")
    assert limits(Resources()).array == 1000, "indices may be higher than an array has tasks"


@pytest.mark.parametrize(
    ("written", "meant"),
    [(5, 5), ("5", 5), ("5:30", 6), ("1:00:00", 60), ("02:30:01", 151), ("1-0", 1440), ("2-12:30", 3630), ("0:01", 1)],
)
def test_times_as_slurm_writes_them(written: str | int, meant: int) -> None:
    assert minutes(written) == meant


@pytest.mark.parametrize("wrong", ["", "soon", "1:2:3:4", "0", 0, "-5", "1-"])
def test_what_is_no_time(wrong: str | int) -> None:
    with pytest.raises(UserError, match=r"^cluster: time: .* no (time|limit)"):
        parse(SlurmConfig, {"time": wrong}, "cluster")


def test_a_stage_has_its_own_resources() -> None:
    site = parse(
        SlurmConfig,
        {"partition": "gpu", "gpus_per_node": 4, "stages": {"pack": {"partition": "cpu", "gpus_per_node": 0}}},
        "cluster",
    )
    assert (site.of("cache").partition, site.of("cache").ranks) == ("gpu", 4)
    assert (site.of("pack").partition, site.of("pack").ranks) == ("cpu", 1)
    assert site.of("cache").alone().ranks == 1


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"stages": {"cash": {}}}, "no such stage"),
        ({"stages": {"cache": {"gpu": 1}}}, "gpu: unknown key"),
        ({"stages": {"cache": {"time": "late"}}}, "no time"),
        ({"partitoin": "x"}, "Did you mean 'partition'"),
        ({"units_per_task": 0}, "units_per_task"),
        ({"sbatch": {"clusters": "cm4"}}, r"sbatch\.clusters: .*export SLURM_CLUSTERS=cm4"),
    ],
)
def test_what_a_site_may_not_say(values: dict[str, object], said: str) -> None:
    with pytest.raises(UserError, match=said):
        parse(SlurmConfig, values, "cluster")


def test_the_code_is_copied_once_and_runs_from_there(tmp_path: Path) -> None:
    copy = code.snapshot(tmp_path)
    assert code.snapshot(tmp_path) == copy
    assert list((tmp_path / code.FOLDER).iterdir()) == [copy]
    assert (copy / "pipeline" / "files.py").read_bytes() == (code.ROOT / "pipeline" / "files.py").read_bytes()
    look = "import stages.base, cluster.compose as c; print(stages.base.__file__, c.CONFIGS.is_dir())"
    command, env = [sys.executable, "-c", look], {"PYTHONPATH": str(copy)}
    done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout.split() == [str(copy / "stages" / "base.py"), "True"], done.stderr


def test_a_commit_without_changes_or_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code, "ROOT", tmp_path)
    with pytest.raises(UserError, match="no git checkout"):
        code.commit()
    (tmp_path / "pipeline").mkdir()
    (tmp_path / "pipeline" / "x.py").write_text("1\n")
    git = ["git", "-C", str(tmp_path), "-c", "user.name=n", "-c", "user.email=e"]
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "m"]):
        subprocess.run([*git, *words], check=True)
    assert len(code.commit()) == 40
    (tmp_path / "pipeline" / "x.py").write_text("2\n")
    with pytest.raises(UserError, match=r"pipeline/x\.py"):
        code.commit()
