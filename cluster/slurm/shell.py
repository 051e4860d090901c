"""The environment in which jobs are submitted: what the config says holds against the user's shell.

sbatch reads variables, and they beat the lines of the script (sbatch(1), "INPUT ENVIRONMENT VARIABLES"). Where the
config says nothing they hold: SBATCH_ACCOUNT is how many sites hand out accounts.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from cluster.slurm.resources import Resources

#: Of what every script says itself, or what would make another job of it: an array, one that is waited for.
ALWAYS = frozenset(
    {"ARRAY_INX", "WAIT", "TIMELIMIT", "JOB_NAME", "OUTPUT", "ERROR", "OPEN_MODE", "SIGNAL", "REQUEUE", "NO_REQUEUE"}
)
#: The variables of an option that are not called like it.
CALLED = {"mem": "MEM_PER_NODE", "switches": "REQ_SWITCH"}
#: What says the same in several ways: who says it in one of them means all.
ALIKE = (
    {"MEM_PER_NODE", "MEM_PER_CPU", "MEM_PER_GPU"},
    {"GRES", "GPUS", "GPUS_PER_NODE", "GPUS_PER_TASK"},
)


def overruled(resources: Resources) -> set[str]:
    """The variables that would change what is asked for."""
    named = ("partition", "account", "qos", "constraint", "reservation", "gres")
    options = {name for name in named if getattr(resources, name) is not None} | {*resources.sbatch}
    options |= {"mem"} if resources.mem_gb is not None else set()
    options |= {"gpus-per-node"} if resources.gpus_per_node else set()
    names = ALWAYS | {CALLED.get(option, option.upper().replace("-", "_")) for option in options}
    names = names.union(*(alike for alike in ALIKE if alike & names))
    return {f"SBATCH_{name}" for name in names}


@contextmanager
def as_asked(resources: Resources) -> Iterator[None]:
    """Meanwhile no variable of the shell overrules the config."""
    kept = {name: os.environ.pop(name) for name in overruled(resources) if name in os.environ}
    try:
        yield
    finally:
        os.environ.update(kept)
