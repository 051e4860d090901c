"""The configuration files of a lab, as SLURM 22.05 reads them; newer versions take them too."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

from tests.slurm.packages import version

# Shortest times that SLURM takes or that hold on a busy machine. ``cred_expire``: a requeued job may start anew so many
# seconds after it ended, 5 is the least.
SLURM = """\
ClusterName=lab
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={controller_port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={folder}/run/munge.socket,cred_expire=5
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
MailProg={true}
StateSaveLocation={folder}/state
SlurmctldPidFile={folder}/run/slurmctld.pid
SlurmctldLogFile={folder}/log/slurmctld.log
SlurmdPidFile={folder}/run/slurmd-%n.pid
SlurmdLogFile={folder}/log/slurmd-%n.log
SlurmdSpoolDir={folder}/spool/%n
SlurmctldDebug=info
SlurmdDebug=info

# many pretended nodes on one host, without cgroups
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU

# a node that does not answer is down after SlurmdTimeout, and serves again when it answers
SlurmdTimeout=6
SlurmctldTimeout=10
MessageTimeout=5
TCPTimeout=2
ReturnToService=2
KillWait=20
InactiveLimit=0
WaitTime=0
CompleteWait=0
UnkillableStepTimeout=30
MinJobAge=300

SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_interval=1,sched_min_interval=0,bf_interval=1,bf_resolution=1,bf_window=1440,nohold_on_prolog_fail,requeue_setup_env_fail
PriorityType=priority/basic
DependencyParameters=kill_invalid_depend
FirstJobId={first_job_id}
MaxArraySize={max_array_size}
JobRequeue=1
PreemptType=preempt/partition_prio
PreemptMode=requeue
SlurmctldParameters=preempt_send_user_signal

AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={accounting_port}
AccountingStoragePass={folder}/run/munge.socket
AccountingStorageEnforce=limits,qos
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=task=30

GresTypes=gpu
NodeName={nodes} NodeHostname=localhost NodeAddr=127.0.0.1 Port={node_ports} CPUs={cpus} RealMemory=65536{gres}
PartitionName=main Nodes=ALL Default=YES PriorityTier=10 PreemptMode=off MaxTime=INFINITE State=UP
PartitionName=low Nodes=ALL PriorityTier=1 PreemptMode=requeue GraceTime={grace_s} MaxTime=INFINITE State=UP
PartitionName=high Nodes=ALL PriorityTier=100 PreemptMode=off MaxTime=INFINITE State=UP
"""

SLURMDBD = """\
AuthType=auth/munge
AuthInfo=socket={folder}/run/munge.socket
DbdHost=localhost
DbdAddr=127.0.0.1
DbdPort={accounting_port}
CommunicationParameters=NoInAddrAny
SlurmUser=root
LogFile={folder}/log/slurmdbd.log
PidFile={folder}/run/slurmdbd.pid
DebugLevel=info
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=root
StorageLoc=accounting
CommitDelay=0
"""


def write(
    folder: Path,
    *,
    prefix: str,
    cpus: int,
    gpus: int,
    max_array_size: int,
    grace_s: int,
    ports: list[int],
) -> None:
    """``slurm.conf``, ``slurmdbd.conf`` and what they need in ``folder``; nodes are called ``<prefix>1`` and so on.

    ``ports``: one of the controller, one of the accounting, then one a node, without gaps.
    """
    controller_port, accounting_port, *node_ports = ports
    values = {
        "folder": folder,
        "true": shutil.which("true"),
        "controller_port": controller_port,
        "accounting_port": accounting_port,
        "node_ports": span(node_ports[0], node_ports[-1]),
        "nodes": prefix + span(1, len(node_ports)),
        "cpus": cpus,
        "gres": f" Gres=gpu:{gpus}" if gpus else "",
        "max_array_size": max_array_size,
        "grace_s": grace_s,
        # ids that no lab had before, since submitit finds its files by them: 100 a second; the highest is 2^26
        "first_job_id": int(time.time()) % 660_000 * 100 + 1,
    }
    (folder / "slurm.conf").write_text(SLURM.format_map(values))
    devices = folder / "devices"
    (folder / "gres.conf").write_text(f"Name=gpu File={devices}/gpu{span(0, gpus - 1)}\n" if gpus else "")
    (folder / "cgroup.conf").write_text(f"CgroupPlugin={no_cgroups()}\n")
    (folder / "slurmdbd.conf").write_text(SLURMDBD.format_map(values))
    (folder / "slurmdbd.conf").chmod(0o600)  # slurmdbd refuses others


def no_cgroups() -> str:
    """The plugin that does nothing: nothing of ours needs it, but slurmd does not start without one."""
    return "disabled" if version() >= (24, 5) else "cgroup/v1"


def span(first: int, last: int) -> str:
    """As SLURM writes many numbers."""
    return f"[{first}-{last}]" if first < last else str(first)
