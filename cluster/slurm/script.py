"""The batch script of a job: submitit's, with what a task needs before and after it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from submitit import SlurmExecutor

from cluster.jobs import journal
from cluster.jobs.history import INTERRUPTED
from cluster.slurm.resources import Resources, check_no_newline, minutes
from pipeline.errors import UserError

#: Exit codes of a task's process. Not 1, which srun says where SLURM saw one of them run out of memory.
FAILED = 83  # and it has said why
STOPPED, AGAIN = 84, 85  # at a safe point, for good; at a safe point, and the task is to go on
OUT_OF_MEMORY = 1
#: How a process ends that the machine ended (ABRT, BUS, FPE, KILL, SEGV), not a person (TERM).
KILLED_BY_KERNEL = 137
KILLED = (134, 135, 136, KILLED_BY_KERNEL, 139)
ASK = 143
NOT_YET = (140, ASK)  # USR2 or TERM came before the process listened, or where it cannot ask what TERM means
TIME_ENDED = "Reason=TimeLimit"  # as scontrol says of a job that was not in time
RESTARTS = 100  # of a task whose process is killed; one that is interrupted goes on for ever

#: SIGTERM reaches this shell too, which must outlive the processes it waits for.
BEFORE = (
    "trap : TERM USR2",
    "unset SLURM_CLUSTERS SBATCH_CLUSTERS",  # a job asks its own cluster, which it need not look up
    # where jobs start with an environment of their own (--export=NONE), srun would hand on nothing that is set here
    "export SLURM_EXPORT_ENV=ALL",
    # login shells often say OMP_NUM_THREADS=1, for their own sake; cluster.setup may say another number
    'if [ -n "$SLURM_CPUS_PER_TASK" ]; then',
    "  export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK",
    "fi",
)


def after(requeue: bool, folder: Path) -> tuple[str, ...]:
    """What follows the work: a task that was interrupted, or whose process was killed, goes back into the queue.

    By its own name: the bare id of the last task of an array is that of the whole array. Where memory is watched by
    cgroups, srun's code says nothing of how the processes ended once one of them, or a child, was killed for want of
    it; their journals do.

    Args:
        requeue: whether it may.
        folder: of the submission.
    """
    if not requeue:
        return ()
    journals = f'{shlex.quote(str(folder / journal.FOLDER))}/"$task".*.jsonl'
    return (
        "code=$?",
        "again=",
        "task=$SLURM_JOB_ID",
        'if [ -n "$SLURM_ARRAY_JOB_ID" ]; then task=${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID; fi',
        f"if [ $code = {OUT_OF_MEMORY} ]; then",
        f"""  last=$(tail -qn 1 {journals} 2>/dev/null | grep '"restart": '"${{SLURM_RESTART_COUNT:-0}}}}")""",
        f"""  if printf %s "$last" | grep -qv '"event": "ended"'; then code={KILLED_BY_KERNEL}""",
        f"""  elif printf %s "$last" | grep -q '"reason": "{INTERRUPTED}"'; then code={AGAIN}; fi""",
        "fi",
        'runs() { scontrol show job "$task" | grep -q JobState=RUNNING; }  # false once somebody has cancelled it',
        # true once somebody has cancelled it, which may be after it was told that its time ends
        "gone() {",
        '  said=$(scontrol show job "$task") || return 1',
        f"  case $said in *{TIME_ENDED}*) return 1;; *JobState=COMPLETING*|*JobState=CANCELLED*) return 0;; esac",
        "  return 1",
        "}",
        f"case $code in {AGAIN}) again=interrupted;; esac",
        f"case $code in {'|'.join(map(str, NOT_YET))}) if runs; then again=interrupted; fi;; esac",
        f"case $code in {'|'.join(map(str, KILLED))})",
        f'  if [ "${{SLURM_RESTART_COUNT:-0}}" -lt {RESTARTS} ] && runs; then again=killed; fi;;',
        "esac",
        'if [ -n "$again" ]; then',
        '  echo "the work was $again (exit code $code): task $task goes back into the queue" >&2',
        # the controller may be away for a while; once it has heard, it ends this script
        "  for wait in 5 10 20 40 80; do",
        '    if gone; then echo "task $task has been cancelled or requeued by somebody else" >&2; break; fi',
        '    if scontrol requeue "$task"; then sleep 60; break; fi; sleep $wait',
        "  done",
        "fi",
        "exit $code",
    )


def make_executor(
    folder: Path,
    *,
    name: str,
    resources: Resources,
    grace_seconds: int,
    requeue: bool,
    path: Path | None,
    after_jobs: Sequence[str],
    kill_together: bool = False,
) -> SlurmExecutor:
    """submitit's executor for the tasks of a stage.

    Args:
        folder: for pickles, scripts and logs.
        name: of the jobs.
        resources: of each task.
        grace_seconds: before the time limit, at which tasks are told.
        requeue: whether they may go back into the queue.
        path: put before PYTHONPATH; None = the installed code.
        after_jobs: jobs and tasks that must have ended well before.
        kill_together: whether all ranks end when one fails.

    Raises:
        UserError: there is no srun here, or a value cannot be written into a script.
    """
    if "%" in str(folder):
        raise UserError(
            f"{folder}: SLURM replaces a % in the names of logs. Keep logs and claims elsewhere: "
            "cluster.folder=<a shared folder without a %>."
        )
    if path is not None and ":" in str(path):
        raise UserError(
            f"{path}: a colon cannot stand in PYTHONPATH. Keep the copy of the code elsewhere: cluster.folder=<a "
            "shared folder without a colon>, or set cluster.code=installed."
        )
    folder.mkdir(parents=True, exist_ok=True)
    try:
        executor = SlurmExecutor(folder, python=_python(resources))
    except RuntimeError:
        raise UserError("cluster=slurm: there is no srun here: this is no login node of a SLURM cluster.") from None
    setup = [*BEFORE, *(check_no_newline("cluster.setup", line) for line in resources.setup)]
    if path is not None:
        setup.append(f"export PYTHONPATH={shlex.quote(str(path))}${{PYTHONPATH:+:$PYTHONPATH}}")
    executor.update_parameters(
        job_name=name,
        time=minutes(resources.time),
        nodes=resources.nodes,
        ntasks_per_node=resources.ranks_per_node,
        array_parallelism=resources.max_parallel,
        signal_delay_s=grace_seconds,
        setup=setup,
        teardown=list(after(requeue, folder)),
        srun_args=[*(["--kill-on-bad-exit=1"] if kill_together else []), *resources.srun],
        wckey=None,
        additional_parameters=_options(resources, requeue=requeue, after_jobs=after_jobs),
        **{"cpus_per_task": resources.cpus_per_task} if resources.cpus_per_task is not None else {},
        **{"gpus_per_node": resources.gpus_per_node} if resources.gpus_per_node else {},
    )
    return executor


def _python(resources: Resources) -> str | None:
    if resources.container is None:
        return resources.python
    return f"{check_no_newline('cluster.container', resources.container)} {resources.python or 'python'}"


def _options(resources: Resources, *, requeue: bool, after_jobs: Sequence[str]) -> Mapping[str, Any]:
    named = ("partition", "account", "qos", "constraint", "reservation", "gres")
    options: dict[str, Any] = {name: getattr(resources, name) for name in named if getattr(resources, name) is not None}
    if resources.mem_gb is not None:
        options["mem"] = f"{round(resources.mem_gb * 1024)}M"
    options["requeue" if requeue else "no-requeue"] = True
    if after_jobs:
        options["dependency"] = f"afterok:{':'.join(after_jobs)}"
        options["kill-on-invalid-dep"] = "yes"
    return {**options, **{key: value for key, value in resources.sbatch.items() if value is not False}}
