"""What is submitted: scripts, arrays and chains; and what is not submitted twice."""

from __future__ import annotations

import functools
import os
import re
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from cluster.chain import chain
from cluster.compose import compose
from cluster.executors.base import Outcome, Submission
from cluster.executors.slurm import Slurm
from cluster.jobs.deaths import note_death
from cluster.jobs.folder import jobs_folder
from cluster.jobs.submissions import Submitted, submissions
from cluster.slurm.script import BEFORE
from cluster.submit import main
from pipeline.config import parse
from pipeline.errors import UserError
from pipeline.places import Place, as_output
from pipeline.progress import Silent
from stages.base import Experiment, Stage, make_stage
from tests.cluster.slurm.conftest import Commands

SMALL = ("experiment=demo_digits", "dataset.images_per_class=1", "pack.min_tars=10", "backbone=vit_small_random")
#: sbatch that counts up: the first job is 100.
SBATCH = 'n=$(cat "$0.n" 2>/dev/null || echo 99); n=$((n+1)); echo $n > "$0.n"; echo "Submitted batch job $n"'


@pytest.fixture
def cluster(commands: Commands) -> Commands:
    """A cluster that takes every job and runs none."""
    commands.answer("srun")
    commands.answer("squeue")
    commands.answer("sbatch", script=SBATCH)
    commands.answer("scontrol", "MaxArraySize = 1001\n")
    return commands


Submit = Callable[..., Outcome]


@pytest.fixture
def submit(tmp_path: Path, cluster: Commands) -> Submit:
    def run(*stages: str, root: Path | None = None, **site: object) -> Outcome:
        values = {"cpus_per_task": 2, "units_per_task": 2, "code": "installed", **site}
        made = Slurm(parse(Slurm.Config, values, "cluster"), Silent())
        links = {name: stage(root or tmp_path / "runs", name) for name in stages}
        return made.submit(Submission(stages=links, resolved={}, command="submit stage=…"))

    return run


@functools.cache
def small() -> Experiment:
    return compose(SMALL).experiment


def stage(root: Place, name: str) -> Stage:
    return make_stage(name, replace(small(), runs_root=root))


def records(root: Path, name: str) -> list[Submitted]:
    return list(submissions(stage(root, name).folder / "jobs"))  # type: ignore[operator, arg-type]


def script(record: Submitted, job: str = "") -> str:
    [path] = record.folder.glob(f"{job or record.jobs[0].id}*_submission.sh")
    return path.read_text()


def packed(root: Path) -> None:
    made = stage(root, "pack")
    made.prepare()
    for unit in made.plan():
        made.run(unit, Silent())
    made.finish(Silent())


def test_missing_units_become_an_array(tmp_path: Path, submit: Submit, cluster: Commands) -> None:
    packed(tmp_path / "runs")
    outcome = submit(
        "cache",
        **{"partition": "gpu", "time": "1-00", "max_parallel": 3, "setup": ["module load cuda"], "grace_seconds": 77},
        **{"sbatch": {"mail-type": "END", "exclusive": True}, "mem_gb": 1.5, "container": "apptainer exec x.sif"},
    )
    assert outcome.failed == {}
    [record] = records(tmp_path / "runs", "cache")
    [job] = record.jobs
    assert (job.id, job.array) == ("100", True)
    assert [work.units for work in job.work] == [(f"{i:06d}", f"{i + 1:06d}") for i in range(0, 10, 2)]
    text = script(record)
    for line in (
        *("--array=0-4%3", "--partition=gpu", "--time=1440", "--mem=1536M", "--cpus-per-task=2", "--requeue"),
        *("--signal=USR2@77", "--mail-type=END", "--exclusive"),
    ):
        assert f"#SBATCH {line}\n" in text
    assert "\nmodule load cuda\n" in text
    assert "apptainer exec x.sif python -u -m submitit.core._submit" in text
    assert "dependency" not in text
    assert text.index("trap") < text.index("module load cuda") < text.index("srun ") < text.index("scontrol requeue")
    assert record.folder.is_dir()


def test_the_config_holds_against_the_shell(
    tmp_path: Path, submit: Submit, cluster: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Variables beat the lines of a script; those that people set for their own jobs must not reach ours."""
    told = tmp_path / "told"
    cluster.answer("sbatch", script=f'env | grep ^SBATCH_ | sort > "{told}"\n{SBATCH}')
    for name in ("WAIT", "ARRAY_INX", "TIMELIMIT", "OUTPUT", "NO_REQUEUE"):
        monkeypatch.setenv(f"SBATCH_{name}", "1")
    for name in ("ACCOUNT", "PARTITION", "MEM_PER_CPU", "GPUS", "NICE", "EXPORT"):
        monkeypatch.setenv(f"SBATCH_{name}", "shell")
    assert submit("pack").failed == {}
    of_others = ["ACCOUNT", "EXPORT", "GPUS", "MEM_PER_CPU", "NICE", "PARTITION"]  # the config says nothing of them
    assert told.read_text().split() == [f"SBATCH_{name}=shell" for name in of_others]
    asked = {"partition": "gpu", "mem_gb": 2, "gpus_per_node": 1, "sbatch": {"nice": 7}}
    assert submit("pack", root=tmp_path / "other", **asked).failed == {}
    assert told.read_text().split() == ["SBATCH_ACCOUNT=shell", "SBATCH_EXPORT=shell"]
    assert os.environ["SBATCH_WAIT"] == "1", "the shell keeps its own"
    assert "export SLURM_EXPORT_ENV=ALL\n" in script(records(tmp_path / "other", "pack")[0])


@pytest.mark.parametrize(("cpus", "threads"), [("4", "4"), ("", "1")])
def test_a_task_has_the_threads_that_were_asked_for(cpus: str, threads: str) -> None:
    told = {"PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1", "SLURM_CPUS_PER_TASK": cpus}
    lines = [*BEFORE, 'echo "$OMP_NUM_THREADS $SRUN_CPUS_PER_TASK $SLURM_EXPORT_ENV"']
    done = subprocess.run(
        ["bash", "-uc", "\n".join(lines)], env={**told, "SRUN_CPUS_PER_TASK": cpus}, capture_output=True
    )
    assert done.stdout.decode().split(" ") == [threads, cpus, "ALL\n"]


def test_jobs_are_seen_whatever_the_shell_says(
    tmp_path: Path, submit: Submit, cluster: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit("pack")
    cluster.answer("squeue", script='[ -n "$SQUEUE_STATES$SQUEUE_PARTITION" ] || echo "100|RUNNING|None|n1|x"')
    monkeypatch.setenv("SQUEUE_STATES", "PENDING")
    monkeypatch.setenv("SQUEUE_PARTITION", "debug")
    assert "go on" in submit("pack").lines[0]
    assert len(records(tmp_path / "runs", "pack")) == 1


@pytest.mark.parametrize(
    ("name", "inside"), [("SLURM_CLUSTERS", False), ("SLURM_CLUSTERS", True), ("SBATCH_CLUSTERS", False)]
)
def test_jobs_are_looked_for_on_the_cluster_that_they_were_sent_to(
    tmp_path: Path, submit: Submit, cluster: Commands, monkeypatch: pytest.MonkeyPatch, name: str, inside: bool
) -> None:
    submit("pack")
    cluster.answer("squeue", script='[ "$SLURM_CLUSTERS" != cm4 ] || echo "100|RUNNING|None|n1|x"')
    monkeypatch.setenv(name, "cm4")
    if inside:  # a job, of whose environment nothing else reaches those that are submitted
        monkeypatch.setenv("SLURM_JOB_ID", "1")
    assert "go on" in submit("pack").lines[0]


def test_stages_wait_for_each_other(tmp_path: Path, submit: Submit, cluster: Commands) -> None:
    outcome = submit("pack", "cache", "train_head", max_parallel=3, stages={"train_head": {"nodes": 2}})
    assert outcome.failed == {}
    pack, cache, train = (records(tmp_path / "runs", name)[0] for name in ("pack", "cache", "train_head"))
    assert [record.jobs[0].id for record in (pack, cache, train)] == ["100", "101", "102"]
    assert "dependency" not in script(pack)
    assert "--dependency=afterok:100\n" in script(cache)
    assert "--kill-on-invalid-dep=yes\n" in script(cache)
    assert [work.share for work in cache.jobs[0].work] == [(0, 3), (1, 3), (2, 3)]
    assert "--dependency=afterok:101\n" in script(train)
    assert "--nodes=2\n" in script(train)
    assert "--kill-on-bad-exit=1" in script(train)
    assert "--nodes=1\n" in script(pack)
    assert len(pack.jobs[0].work) == 1


def test_heads_wait_for_what_they_read_and_not_for_each_other(tmp_path: Path, cluster: Commands) -> None:
    heads = ["evaluate.compare=[elk,cross_entropy]", "train_head.tuned=true"]
    experiment = replace(compose([*SMALL, *heads]).experiment, runs_root=tmp_path)
    links = chain(["pack", "cache", "tune", "train_head", "evaluate"], experiment)
    made = Slurm(parse(Slurm.Config, {"cpus_per_task": 1, "code": "installed"}, "cluster"), Silent())
    assert made.submit(Submission(stages=links, resolved={}, command="submit stage=…")).failed == {}
    found = {name: next(submissions(jobs_folder(one))) for name, one in links.items()}
    job = {name: record.jobs[0].id for name, record in found.items()}
    after = {name: {*record.after} for name, record in found.items()}
    assert after["pack"] == set()
    assert after["cache"] == {job["pack"]}
    for head in ("", " head=elk", " head=cross_entropy"):
        assert after[f"tune{head}"] == {job["cache"]}
        assert after[f"train_head{head}"] == {job["cache"], job[f"tune{head}"]}
    assert after["evaluate"] == {id for name, id in job.items() if name.startswith("train_head")} | {job["cache"]}


def running(cluster: Commands, *tasks: str, state: str = "RUNNING", reason: str = "None") -> None:
    cluster.answer("squeue", "".join(f"{task}|{state}|{reason}|n1\n" for task in tasks))


def test_what_waits_or_runs_is_not_submitted_again(tmp_path: Path, submit: Submit, cluster: Commands) -> None:
    root = tmp_path / "runs"
    packed(root)
    submit("cache", "train_head")
    running(cluster, "100_1", "100_3", "101")
    outcome = submit("cache", "train_head")
    assert outcome.failed == {}
    [_, second] = records(root, "cache")
    again = [unit for work in second.jobs[0].work for unit in work.units or ()]
    assert again == ["000000", "000001", "000004", "000005", "000008", "000009"]
    assert len(records(root, "train_head")) == 1, "it waits already"
    running(cluster, "100_1", "100_3", *(f"102_{i}" for i in range(3)))
    submit("cache", "train_head")
    assert len(records(root, "cache")) == 2
    [_, train] = records(root, "train_head")
    # not 100, of which a task failed perhaps: then it never ends well, and what waits for it is cancelled
    assert "--dependency=afterok:100_1:100_3:102\n" in script(train)
    assert train.after == ("100", "102")


def test_what_waits_already_waits_for_what_is_submitted_later(
    tmp_path: Path, submit: Submit, cluster: Commands
) -> None:
    """A task of job 100 has failed, and what it was to do is done by job 102: job 100 never ends well."""
    root = tmp_path / "runs"
    packed(root)
    submit("cache", "train_head")
    told = "".join(f"{task}|RUNNING|None|n1\n" for task in ("100_1", "100_3"))
    cluster.answer("squeue", told + "101|PENDING|Dependency||\n")
    submit("cache", "train_head")
    [train] = records(root, "train_head")
    assert "update JobId=101 Dependency=afterok:100_1:100_3:102" in cluster.asked("scontrol")
    assert train.after == ("100", "102")
    told += "".join(f"102_{i}|RUNNING|None|n1\n" for i in range(3))
    cluster.answer("squeue", told.replace("100_", "102_") + "101|PENDING|Dependency||\n")
    asked = len(cluster.asked("scontrol"))
    cluster.answer("scontrol", code=1, error="Job has already begun\n")
    assert submit("cache", "train_head").failed == {}, "if it cannot be told any more, it has begun"
    assert len(cluster.asked("scontrol")) > asked


def test_what_waits_for_something_that_failed_is_dead(tmp_path: Path, submit: Submit, cluster: Commands) -> None:
    submit("pack", "cache")
    running(cluster, "100")
    submit("pack", "cache")
    assert len(records(tmp_path / "runs", "pack")) == 1
    assert len(records(tmp_path / "runs", "cache")) == 2
    running(cluster, *(f"101_{i}" for i in range(64)), state="PENDING", reason="DependencyNeverSatisfied")
    submit("pack", "cache")
    assert len(records(tmp_path / "runs", "pack")) == 2


def test_more_tasks_than_an_array_takes(tmp_path: Path, submit: Submit, cluster: Commands) -> None:
    cluster.answer("scontrol", "MaxArraySize = 2\n")
    packed(tmp_path / "runs")
    submit("cache", "train_head")
    [record] = records(tmp_path / "runs", "cache")
    assert [len(job.work) for job in record.jobs] == [2, 2, 1]
    assert [job.array for job in record.jobs] == [True, True, False]
    assert "--array=0-1%2\n" in script(record, "100")
    [train] = records(tmp_path / "runs", "train_head")
    assert "--dependency=afterok:100:101:102\n" in script(train)


def test_more_tasks_than_a_user_may_submit(tmp_path: Path, submit: Submit, cluster: Commands) -> None:
    cluster.answer("sacctmgr", "4\n")
    running(cluster, "7", "8")
    packed(tmp_path / "runs")
    submit("cache", units_per_task=1)
    [record] = records(tmp_path / "runs", "cache")
    assert [len(work.units or ()) for work in record.jobs[0].work] == [5, 5]


def test_a_limit_that_nobody_tells_is_found(tmp_path: Path, submit: Submit, cluster: Commands) -> None:
    """sbatch takes no array of more than three tasks, and does not say how many it takes."""
    refuse = "sbatch: error: QOSMaxSubmitJobPerUserLimit\nsbatch: error: Batch job submission failed: Job violates"
    limit = f'if grep -q "array=0-[3-9]" "$1"; then echo "{refuse} accounting/QOS policy" >&2; exit 1; fi; {SBATCH}'
    cluster.answer("sbatch", script=limit)
    packed(tmp_path / "runs")
    outcome = submit("cache", units_per_task=1)
    assert outcome.failed == {}
    [record] = records(tmp_path / "runs", "cache")
    works = [work.units or () for job in record.jobs for work in job.work]
    assert [unit for work in works for unit in work] == [f"{i:06d}" for i in range(10)]
    assert [len(work) for work in works] == [5, 5]


def test_no_room_in_the_queue(tmp_path: Path, submit: Submit, cluster: Commands) -> None:
    """sbatch takes one array of two tasks and no job after it."""
    refuse = 'echo "sbatch: error: AssocMaxSubmitJobLimit" >&2; echo "Batch job submission failed" >&2; exit 1'
    cluster.answer("scontrol", "MaxArraySize            = 2\n")
    cluster.answer("sbatch", script=f'if [ -e "$0.full" ]; then {refuse}; fi; touch "$0.full"; {SBATCH}')
    packed(tmp_path / "runs")
    outcome = submit("cache", "train_head", units_per_task=2)
    assert outcome.lines[0].split("; ")[0] == "cache: job 100: 4 units in 2 tasks"
    assert outcome.failed == {
        "cache": "there are as many jobs in the queue as SLURM takes (AssocMaxSubmitJobLimit), so 6 units are not "
        "submitted. The same command submits what is missing once others have ended."
    }
    running(cluster, "100_0", "100_1")
    (cluster.folder / "sbatch.full").unlink()
    submit("cache", units_per_task=6)
    _, second = records(tmp_path / "runs", "cache")
    assert [work.units for work in second.jobs[0].work] == [tuple(f"{unit:06d}" for unit in range(4, 10))]


def test_refused_for_another_reason(tmp_path: Path, submit: Submit, cluster: Commands) -> None:
    cluster.answer("sbatch", code=1, error="sbatch: error: invalid partition specified: gpux\n")
    outcome = submit("pack", "cache", partition="gpux")
    assert list(outcome.failed) == ["pack"]
    assert "invalid partition specified: gpux" in outcome.failed["pack"]
    assert records(tmp_path / "runs", "cache") == []


@pytest.mark.parametrize("error", ["Socket timed out on send/recv operation", None])
def test_what_slurm_took_although_sbatch_failed_is_cancelled(
    tmp_path: Path, submit: Submit, cluster: Commands, error: str | None
) -> None:
    """The answer of a busy controller came too late, or nobody can read it: no record would name the job."""
    queue = (
        f'echo "100|PENDING|Priority||$(readlink -f "$1")" > "{cluster.folder}/squeue.out"; echo "7|RUNNING|||/x/y" >> '
    )
    queue += f'"{cluster.folder}/squeue.out"; '
    failed = f'echo "sbatch: error: Batch job submission failed: {error}" >&2; exit 1' if error else "echo thank you"
    cluster.answer("sbatch", script=queue + failed)
    cluster.answer("scancel")
    outcome = submit("pack")
    assert "but SLURM had taken the job: 100 is cancelled. The same command tries again" in outcome.failed["pack"]
    assert (error or "thank you") in outcome.failed["pack"]
    assert cluster.asked("scancel") == ["100"]
    cluster.answer("squeue", code=1, error="squeue: error: Unable to contact slurm controller\n")
    if error:
        (tmp_path / "other").mkdir()
        assert "sbatch had no answer" in submit("pack", root=tmp_path / "other").failed["pack"]


def test_jobs_are_asked_for_by_the_user_who_runs_this(
    tmp_path: Path, submit: Submit, cluster: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever LOGNAME says, as after su: jobs of another one are not the ones that were submitted."""
    submit("pack")
    cluster.answer("squeue", script=f'case "$*" in *--user={os.getuid()}*) echo "100|EXPEDITING|None|n1|x";; esac')
    monkeypatch.setenv("LOGNAME", "daemon")
    assert "go on" in submit("pack").lines[0], "and its state is one that only a newer SLURM knows"


def test_units_that_were_given_up_stop_the_chain(tmp_path: Path, submit: Submit, cluster: Commands) -> None:
    root = tmp_path / "runs"
    packed(root)
    for _ in range(3):
        note_death(stage(root, "cache").folder / "jobs", "000004", "task 9 died")  # type: ignore[operator, arg-type]
    outcome = submit("cache", "train_head")
    assert list(outcome.failed) == ["cache, unit 000004 (00004.tar)"]
    [record] = records(root, "cache")
    submitted = [unit for work in record.jobs[0].work for unit in work.units or ()]
    assert len(submitted) == 9
    assert "000004" not in submitted
    assert records(root, "train_head") == []


def test_nothing_is_submitted_while_nobody_can_tell_what_runs(
    tmp_path: Path, submit: Submit, cluster: Commands
) -> None:
    submit("pack")
    cluster.answer("squeue", code=1, error="squeue: error: Unable to contact slurm controller\n")
    outcome = submit("pack")
    assert "Unable to contact slurm controller" in outcome.failed["pack"]
    assert len(records(tmp_path / "runs", "pack")) == 1


def test_no_cluster_here(tmp_path: Path, commands: Commands, submit: Submit, monkeypatch: pytest.MonkeyPatch) -> None:
    (commands.folder / "srun").unlink()
    assert "no srun here" in submit("pack").failed["pack"]


@pytest.mark.parametrize("name", ['it\'s a "dir"', "ä & (b) [c]; $HOME", "50%", "a:b"])
def test_folders_with_odd_names(tmp_path: Path, submit: Submit, name: str) -> None:
    outcome = submit("pack", root=tmp_path / name / "runs", code="snapshot")
    if "%" in name or ":" in name:
        assert "cluster.folder" in outcome.failed["pack"]
        elsewhere = submit("pack", root=tmp_path / name / "runs", folder=str(tmp_path / "plain"), code="snapshot")
        assert elsewhere.failed == {}
    else:
        assert outcome.failed == {}
        text = script(records(tmp_path / name / "runs", "pack")[0])
        assert re.search(r"export PYTHONPATH='.*jobs/code/[0-9a-f]{12}'", text)


def test_a_finished_chain_submits_nothing(tmp_path: Path, submit: Submit, cluster: Commands) -> None:
    packed(tmp_path / "runs")
    outcome = submit("pack")
    assert outcome.failed == {}
    assert "nothing to do" in outcome.lines[0]
    assert cluster.asked("sbatch") == []


def test_run_folders_that_are_no_local_path_need_a_shared_one(tmp_path: Path) -> None:
    remote = stage(as_output("s3://bucket/runs"), "pack")
    with pytest.raises(UserError, match=r"cluster\.folder"):
        jobs_folder(remote)
    assert jobs_folder(remote, tmp_path).parent == tmp_path


def test_help_lists_the_keys_of_a_site(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help", "cluster=slurm_gpu", "cluster.time=90"]) == 0
    said = capsys.readouterr().out
    assert "cluster.time = 90\n" in said
    assert "cluster.units_per_task = 16\n      int ≥ 1\n      that one task works in order" in said
